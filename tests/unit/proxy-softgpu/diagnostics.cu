// SPDX-License-Identifier: GPL-2.0-or-later
// printf, assert, trap.
#include <cassert>
#include <cstdio>

extern "C" __global__ void says(int n, double x, const char *s) {
    printf("n=%d x=%f s=%s\n", n, x, s);
    printf("done\n");
}
extern "C" __global__ void asserts(const int *n) {
    assert(n[threadIdx.x] > 0);
    if (n[0] == 5)
        __trap();
    if (n[1] == 6)
        __brkpt();
}
