// SPDX-License-Identifier: GPL-2.0-or-later
// Breadth-first search of a directed graph, level by level, with a queue that is filled by atomics (one
// addition for a warp); the frontier's size comes back to the host after each level. Argument: vertices.
#include "workload.cuh"

#include <queue>

__global__ void expand(const int *starts, const int *targets, const int *frontier, int frontier_size,
                       int *levels, int level, int *next, int *next_size) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= frontier_size)
        return;
    const int vertex = frontier[i];
    for (int edge = starts[vertex]; edge < starts[vertex + 1]; ++edge) {
        const int target = targets[edge];
        if (atomicCAS(&levels[target], -1, level + 1) != -1)
            continue;
        // The lanes that are here reserve their places together.
        const unsigned lanes = __activemask();
        const int lane = static_cast<int>(threadIdx.x % warpSize);
        const int leader = __ffs(static_cast<int>(lanes)) - 1;
        int base = 0;
        if (lane == leader)
            base = atomicAdd(next_size, __popc(lanes));
        base = __shfl_sync(lanes, base, leader);
        next[base + __popc(lanes & ((1U << lane) - 1))] = target;
    }
}

int main(int argc, char **argv) {
    const int vertices = static_cast<int>(workload::size_argument(argc, argv, 20000, 1U << 22));
    workload::Random random(73);
    std::vector<int> starts{0};
    std::vector<int> targets;
    for (int vertex = 0; vertex < vertices; ++vertex) {
        const unsigned degree = vertex % 512 == 3 ? 200 : random.below(6);
        for (unsigned i = 0; i < degree; ++i) {
            // Mostly near: many levels.
            const auto near = static_cast<int>(random.below(256)) - 96;
            const int target =
                random.below(400) == 0 ? static_cast<int>(random.below(vertices)) : vertex + near;
            targets.push_back((target + vertices) % vertices);
        }
        starts.push_back(static_cast<int>(targets.size()));
    }
    std::vector<int> expected(vertices, -1);
    std::queue<int> queue;
    expected[3] = 0;
    queue.push(3);
    while (!queue.empty()) {
        const int vertex = queue.front();
        queue.pop();
        for (int edge = starts[vertex]; edge < starts[vertex + 1]; ++edge)
            if (expected[targets[edge]] < 0) {
                expected[targets[edge]] = expected[vertex] + 1;
                queue.push(targets[edge]);
            }
    }

    workload::Report report;
    workload::Buffer<int> device_starts(starts);
    workload::Buffer<int> device_targets(targets);
    std::vector<int> levels(vertices, -1);
    levels[3] = 0;
    workload::Buffer<int> device_levels(levels);
    workload::Buffer<int> frontiers[2]{workload::Buffer<int>(vertices), workload::Buffer<int>(vertices)};
    workload::Buffer<int> next_size(1);
    const int source = 3;
    CHECK(cudaMemcpy(frontiers[0].data(), &source, sizeof source, cudaMemcpyHostToDevice));
    int size = 1;
    for (int level = 0; size > 0; ++level) {
        if (level % 8 == 0)
            std::printf("level %d: %d vertices\n", level, size);
        next_size.clear();
        expand<<<workload::blocks_for(size, 64), 64>>>(
            device_starts.data(), device_targets.data(), frontiers[level % 2].data(), size,
            device_levels.data(), level, frontiers[(level + 1) % 2].data(), next_size.data());
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(&size, next_size.data(), sizeof size, cudaMemcpyDeviceToHost));
    }
    report.equal("levels", device_levels.read(), expected);
    return report.finish();
}
