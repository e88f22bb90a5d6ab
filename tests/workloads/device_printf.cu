// SPDX-License-Identifier: GPL-2.0-or-later
// printf on the device: every kind of argument, and text in the order in which it was written, between that
// of the host.
#include "workload.cuh"

__global__ void formats(const char *word) {
    printf("integers %d %u %x %#o %5d|%-5d|%05d %lld %llu %hd %+d %*d %i %o %X\n", -17, 17U, 0xbeefU, 8, 42,
           42, 42, -1234567890123LL, 18446744073709551615ULL, 300, 5, 4, 7, -3, 8, 255);
    printf("floats %f %.3f %e %g %G %10.2f|%-10.2f|%a\n", 3.14159265358979, -2.5, 12345.678, 1e-10, 1e20,
           2.0 / 3.0, 1.0f / 3.0f, 0.1);
    printf("text %s|%8s|%-8s|%.2s %c%c %%\n", word, "right", "left", "cut", 'o', 'k');
    printf("no arguments\n");
}

// One lane after another.
__global__ void lanes() {
    for (unsigned lane = 0; lane < 4; ++lane) {
        if (threadIdx.x == lane * 8)
            printf("lane %u of %u\n", threadIdx.x, blockDim.x);
        __syncwarp();
    }
}

__global__ void returned(int *results) { results[0] = printf("two %d %d\n", 1, 2); }

int main() {
    workload::Report report;
    workload::Buffer<char> word(std::vector<char>{'d', 'e', 'v', 'i', 'c', 'e', '\0'});
    std::printf("host first\n");
    std::fflush(stdout);
    formats<<<1, 1>>>(word.data());
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    std::printf("host between\n");
    std::fflush(stdout);
    lanes<<<1, 32>>>();
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    workload::Buffer<int> results(1);
    returned<<<1, 1>>>(results.data());
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    report.expect(results.read()[0] == 2, "printf returns the number of arguments");
    return report.finish();
}
