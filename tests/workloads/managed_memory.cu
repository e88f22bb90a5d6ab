// SPDX-License-Identifier: GPL-2.0-or-later
// Managed memory: a search tree with pointers that the host builds and the device walks, then changes made by
// turns, and a managed variable. Argument: nodes.
#include "workload.cuh"

#include <utility>

struct Node {
    int key;
    int visits;
    Node *left, *right;
};

__managed__ int deepest = 0;
__managed__ int totals[2] = {7, 0};

__global__ void look_up(Node *root, const int *asked, int *depths, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= count)
        return;
    int depth = 1;
    Node *node = root;
    while (node != nullptr && node->key != asked[i]) {
        node = asked[i] < node->key ? node->left : node->right;
        ++depth;
    }
    depths[i] = node == nullptr ? -depth : depth;
    if (node != nullptr) {
        atomicAdd(&node->visits, 1);
        atomicMax(&deepest, depth);
    }
    atomicAdd(&totals[1], 1);
}

int main(int argc, char **argv) {
    const int count = static_cast<int>(workload::size_argument(argc, argv, 5000, 1U << 24));
    workload::Report report;
    Node *nodes = nullptr;
    int *asked = nullptr;
    int *depths = nullptr;
    CHECK(cudaMallocManaged(&nodes, count * sizeof(Node)));
    CHECK(cudaMallocManaged(&asked, count * sizeof(int)));
    CHECK(cudaMallocManaged(&depths, count * sizeof(int)));
    workload::Random random(127);
    for (int i = 0; i < count; ++i) {
        nodes[i] = {static_cast<int>(random.below(1000000)), 0, nullptr, nullptr};
        Node *at = &nodes[0];
        while (i > 0) {
            Node *&next = nodes[i].key < at->key ? at->left : at->right;
            if (next == nullptr) {
                next = &nodes[i];
                break;
            }
            at = next;
        }
    }
    std::vector<int> visits(count, 0);
    for (int round = 0; round < 3; ++round) {
        std::vector<int> expected;
        for (int i = 0; i < count; ++i) {
            asked[i] = random.below(2) == 0 ? nodes[random.below(static_cast<unsigned>(count))].key
                                            : static_cast<int>(random.below(1000000));
            int depth = 1;
            Node *node = &nodes[0];
            while (node != nullptr && node->key != asked[i]) {
                node = asked[i] < node->key ? node->left : node->right;
                ++depth;
            }
            expected.push_back(node == nullptr ? -depth : depth);
            if (node != nullptr)
                ++visits[node - nodes];
        }
        look_up<<<workload::blocks_for(count, 128), 128>>>(nodes, asked, depths, count);
        CHECK_LAUNCH();
        CHECK(cudaDeviceSynchronize());
        report.equal("depths", std::vector<int>(depths, depths + count), expected);
        // The host changes the tree between two rounds: the root's children are mirrored, keys with them.
        for (int i = 0; i < count; ++i) {
            nodes[i].key = 1000000 - nodes[i].key;
            std::swap(nodes[i].left, nodes[i].right);
        }
    }
    std::vector<int> found;
    for (int i = 0; i < count; ++i)
        found.push_back(nodes[i].visits);
    report.value("deepest", deepest);
    report.expect(totals[0] == 7 && totals[1] == 3 * count, "managed variables");
    long long sum = 0;
    long long expected_sum = 0;
    for (int i = 0; i < count; ++i) {
        sum += found[i];
        expected_sum += visits[i];
    }
    report.value("visits", sum);
    report.expect(sum == expected_sum && found == visits, "visits of each node");

    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, nodes));
    report.expect(attributes.type == cudaMemoryTypeManaged, "pointer attributes");
    CHECK(cudaMemset(depths, 0, count * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    report.expect(depths[0] == 0 && depths[count - 1] == 0, "memset of managed memory");
    CHECK(cudaFree(nodes));
    CHECK(cudaFree(asked));
    CHECK(cudaFree(depths));
    return report.finish();
}
