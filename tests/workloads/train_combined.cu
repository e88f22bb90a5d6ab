// SPDX-License-Identifier: GPL-2.0-or-later
// Data-, pipeline- and tensor-parallel training with NCCL, 2 x 2 x 2 ranks. Argument: steps.
#include "layouts.cuh"

int main(int argc, char **argv) { return training::train({.data = 2, .stages = 2, .tensor = 2}, argc, argv); }
