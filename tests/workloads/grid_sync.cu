// SPDX-License-Identifier: GPL-2.0-or-later
// Cooperative launch: one kernel that sorts by odd-even transposition and relaxes shortest paths (Floyd and
// Warshall) with barriers of the whole grid between the steps, and groups of part of a warp. Argument:
// vertices.
#include "workload.cuh"

#include <algorithm>

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

constexpr unsigned threads = 64;

__global__ void shortest_paths(int *distances, int vertices) {
    const cg::grid_group grid = cg::this_grid();
    for (int middle = 0; middle < vertices; ++middle) {
        for (auto i = static_cast<int>(grid.thread_rank()); i < vertices * vertices;
             i += static_cast<int>(grid.size())) {
            const int from = i / vertices;
            const int to = i % vertices;
            // Row and column `middle` do not change in this step: nobody reads what another writes.
            const int through = distances[from * vertices + middle] + distances[middle * vertices + to];
            if (from != middle && to != middle && through < distances[i])
                distances[i] = through;
        }
        grid.sync();
    }
}

__global__ void sort(int *values, int count, int *exchanges) {
    const cg::grid_group grid = cg::this_grid();
    const auto i = static_cast<int>(grid.thread_rank());
    int own = 0;
    for (int step = 0; step < count; ++step) {
        const int low = 2 * i + step % 2;
        if (low + 1 < count && values[low] > values[low + 1]) {
            const int moved = values[low];
            values[low] = values[low + 1];
            values[low + 1] = moved;
            ++own;
        }
        grid.sync();
    }
    const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    const int sum = cg::reduce(tile, own, cg::plus<int>());
    if (tile.thread_rank() == 0)
        atomicAdd(exchanges, sum);
}

template <typename... Arguments>
void launch_cooperatively(void (*kernel)(Arguments...), unsigned blocks, Arguments... arguments) {
    void *parameters[] = {&arguments...};
    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(kernel), dim3(blocks), dim3(threads),
                                      parameters, 0, nullptr));
}

int main(int argc, char **argv) {
    const int vertices = static_cast<int>(workload::size_argument(argc, argv, 48, 2048));
    workload::Report report;
    int cooperative = 0;
    CHECK(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
    int per_processor = 0;
    int processors = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, shortest_paths, threads, 0));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    report.expect(cooperative == 1 && per_processor > 0 && processors > 0,
                  "cooperative launches are possible");
    const unsigned blocks = std::min(8U, static_cast<unsigned>(per_processor * processors));

    workload::Random random(107);
    std::vector<int> distances(static_cast<std::size_t>(vertices) * vertices, 1 << 28);
    for (int from = 0; from < vertices; ++from) {
        distances[static_cast<std::size_t>(from) * vertices + from] = 0;
        for (int i = 0; i < 3; ++i)
            distances[static_cast<std::size_t>(from) * vertices + random.below(vertices)] =
                static_cast<int>(1 + random.below(100));
    }
    workload::Buffer<int> device(distances);
    launch_cooperatively(shortest_paths, blocks, device.data(), vertices);
    for (int middle = 0; middle < vertices; ++middle)
        for (int from = 0; from < vertices; ++from)
            for (int to = 0; to < vertices; ++to) {
                int &known = distances[static_cast<std::size_t>(from) * vertices + to];
                if (from != middle && to != middle)
                    known = std::min(known, distances[static_cast<std::size_t>(from) * vertices + middle] +
                                                distances[static_cast<std::size_t>(middle) * vertices + to]);
            }
    report.equal("distances", device.read(), distances);

    const int count = static_cast<int>(blocks * threads); // half the threads have a pair
    std::vector<int> values(count);
    for (int &value : values)
        value = static_cast<int>(random.below(1000));
    long long inversions = 0;
    for (int i = 0; i < count; ++i)
        for (int j = i + 1; j < count; ++j)
            inversions += values[i] > values[j] ? 1 : 0;
    workload::Buffer<int> device_values(values);
    workload::Buffer<int> exchanges(1);
    exchanges.clear();
    launch_cooperatively(sort, blocks, device_values.data(), count, exchanges.data());
    std::sort(values.begin(), values.end());
    report.equal("sorted", device_values.read(), values);
    report.expect(exchanges.read()[0] == inversions, "as many exchanges as inversions");
    return report.finish();
}
