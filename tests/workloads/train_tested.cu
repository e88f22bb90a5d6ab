// SPDX-License-Identifier: GPL-2.0-or-later
// Data-parallel training with NCCL as in train_data, of 8 ranks on four fifths of the digits; the others test
// what has been learned. Argument: steps; 400 for more than 95 %.
#include "layouts.cuh"

int main(int argc, char **argv) {
    return training::train({.data = 8, .stages = 1, .tensor = 1}, argc, argv, 1437, true);
}
