// SPDX-License-Identifier: GPL-2.0-or-later
// Connected components of an undirected graph: hooking of roots with atomicCAS and pointer jumping. A
// component's label is its smallest vertex. Argument: vertices.
#include "workload.cuh"

#include <algorithm>
#include <numeric>

// volatile: another block's exchange has to show, or `unite` would go round for ever.
__device__ int root_of(volatile int *parents, int vertex) {
    int parent = parents[vertex];
    while (parent != parents[parent]) {
        parents[vertex] = parents[parent]; // halves the path; a lost update only costs time
        vertex = parent;
        parent = parents[vertex];
    }
    return parent;
}

__global__ void unite(int *parents, const int2 *edges, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= count)
        return;
    int a = root_of(parents, edges[i].x);
    int b = root_of(parents, edges[i].y);
    while (a != b) {
        // The larger root is hung below the smaller one if it is still a root.
        const int high = max(a, b);
        const int low = min(a, b);
        if (atomicCAS(&parents[high], high, low) == high)
            return;
        a = root_of(parents, high);
        b = root_of(parents, low);
    }
}

__global__ void flatten(int *parents, int vertices) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < vertices)
        parents[i] = root_of(parents, i);
}

int find(std::vector<int> &parents, int vertex) {
    while (parents[vertex] != vertex)
        vertex = parents[vertex] = parents[parents[vertex]];
    return vertex;
}

int main(int argc, char **argv) {
    const int vertices = static_cast<int>(workload::size_argument(argc, argv, 30000, 1U << 24));
    const int count = vertices * 2 / 5;
    workload::Random random(79);
    std::vector<int2> edges(count);
    std::vector<int> parents(vertices);
    std::iota(parents.begin(), parents.end(), 0);
    workload::Buffer<int> device_parents(parents);
    for (int2 &edge : edges) {
        edge.x = static_cast<int>(random.below(vertices));
        edge.y = random.below(2) == 0 ? static_cast<int>(random.below(vertices)) : (edge.x + 1) % vertices;
        const int a = find(parents, edge.x);
        const int b = find(parents, edge.y);
        parents[std::max(a, b)] = std::min(a, b);
    }
    int components = 0;
    for (int i = 0; i < vertices; ++i) {
        parents[i] = find(parents, i);
        components += parents[i] == i ? 1 : 0;
    }

    workload::Report report;
    workload::Buffer<int2> device_edges(edges);
    unite<<<workload::blocks_for(count, 128), 128>>>(device_parents.data(), device_edges.data(), count);
    flatten<<<workload::blocks_for(vertices, 128), 128>>>(device_parents.data(), vertices);
    CHECK_LAUNCH();
    report.value("components", components);
    report.equal("labels", device_parents.read(), parents);
    return report.finish();
}
