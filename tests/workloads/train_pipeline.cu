// SPDX-License-Identifier: GPL-2.0-or-later
// Pipeline-parallel training with NCCL: 4 stages, which send activations and gradients. Argument: steps.
#include "layouts.cuh"

int main(int argc, char **argv) { return training::train({.data = 1, .stages = 4, .tensor = 1}, argc, argv); }
