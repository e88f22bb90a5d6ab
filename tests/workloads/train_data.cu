// SPDX-License-Identifier: GPL-2.0-or-later
// Data-parallel training with NCCL: 8 ranks add up their gradients. Argument: steps.
#include "layouts.cuh"

int main(int argc, char **argv) { return training::train({.data = 8, .stages = 1, .tensor = 1}, argc, argv); }
