// SPDX-License-Identifier: GPL-2.0-or-later
// Compiled with per-thread default streams: threads that use no stream by name sort their own data by
// counting, at the same time, and end without cleaning up. Argument: elements of each thread.
#include "workload.cuh"

#include <algorithm>
#include <thread>

constexpr unsigned keys = 128;

__global__ void count(const unsigned char *data, unsigned size, unsigned *counts) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size)
        atomicAdd(&counts[data[i]], 1U);
}

__global__ void place(const unsigned *counts, unsigned char *sorted) {
    unsigned start = 0;
    for (unsigned key = 0; key < threadIdx.x; ++key)
        start += counts[key];
    for (unsigned i = 0; i < counts[threadIdx.x]; ++i)
        sorted[start + i] = static_cast<unsigned char>(threadIdx.x);
}

int main(int argc, char **argv) {
    const auto size = static_cast<unsigned>(workload::size_argument(argc, argv, 10000, 1U << 24));
    constexpr int workers = 5;
    std::vector<std::vector<unsigned char>> found(workers);
    std::vector<std::vector<unsigned char>> expected(workers);
    for (int worker = 0; worker < workers; ++worker) {
        workload::Random random(139 + worker);
        expected[worker].resize(size);
        for (unsigned char &value : expected[worker])
            value = static_cast<unsigned char>(random.below(keys));
    }
    std::vector<std::thread> team;
    for (int worker = 0; worker < workers; ++worker)
        team.emplace_back([&, worker] {
            unsigned char *data = nullptr;
            unsigned char *sorted = nullptr;
            unsigned *counts = nullptr;
            CHECK(cudaMalloc(&data, size));
            CHECK(cudaMalloc(&sorted, size));
            CHECK(cudaMalloc(&counts, keys * sizeof(unsigned)));
            CHECK(cudaMemcpyAsync(data, expected[worker].data(), size, cudaMemcpyHostToDevice));
            for (int round = 0; round < 3; ++round) {
                CHECK(cudaMemsetAsync(counts, 0, keys * sizeof(unsigned)));
                count<<<workload::blocks_for(size, 128), 128>>>(data, size, counts);
                place<<<1, keys>>>(counts, sorted);
                CHECK_LAUNCH();
            }
            found[worker].resize(size);
            CHECK(cudaMemcpyAsync(found[worker].data(), sorted, size, cudaMemcpyDeviceToHost));
            CHECK(cudaStreamSynchronize(cudaStreamPerThread));
        });
    for (std::thread &worker : team)
        worker.join();
    workload::Report report;
    for (int worker = 0; worker < workers; ++worker) {
        std::sort(expected[worker].begin(), expected[worker].end());
        report.equal("sorted", found[worker], expected[worker]);
    }
    return report.finish();
}
