// SPDX-License-Identifier: GPL-2.0-or-later
// Tensor-parallel training with NCCL: 2 groups of 4 ranks, which share each matrix. Argument: steps.
#include "layouts.cuh"

int main(int argc, char **argv) { return training::train({.data = 2, .stages = 1, .tensor = 4}, argc, argv); }
