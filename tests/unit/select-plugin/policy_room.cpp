// SPDX-License-Identifier: GPL-2.0-or-later
// The free GPUs: where blocks go, and that the lists and trees agree with a plain count after anything that
// happens.
#include "cmocka.hpp"
#include "policy_random.hpp"
#include "room.hpp"

#include <array>
#include <numeric>
#include <vector>

namespace {

using namespace singularity;
using namespace singularity::policy;

constexpr std::array<std::uint32_t, 4> kBlocks{1, 2, 4, 8};

std::vector<Node> nodes_of(std::uint32_t count, std::uint32_t of_leaf) {
    std::vector<Node> nodes;
    nodes.reserve(count);
    for (std::uint32_t node = 0; node < count; ++node)
        nodes.push_back({.gpus = 8, .leaf = node / of_leaf});
    return nodes;
}

void one_block_goes_where_it_leaves_least(void ** /*state*/) {
    const auto nodes = nodes_of(4, 2);
    Room room;
    room.reset(nodes, kBlocks, std::array<std::uint32_t, 4>{8, 3, 2, 5});
    std::vector<Share> shares;
    assert_true(room.take(1, 2, kAllKinds, shares));
    assert_true((shares == std::vector<Share>{{2, 2}}));
    assert_true(room.take(1, 4, kAllKinds, shares));
    assert_true((shares.back() == Share{3, 4}));
    assert_int_equal(room.idle(), 12);
}

void a_gang_stays_under_one_leaf_where_there_is_room(void ** /*state*/) {
    const auto nodes = nodes_of(6, 2);
    Room room;
    room.reset(nodes, kBlocks, std::array<std::uint32_t, 6>{8, 0, 4, 8, 8, 8});
    std::vector<Share> shares;
    assert_true(room.take(2, 8, kAllKinds, shares)); // not nodes 0 and 3, though they come first
    assert_true((shares == std::vector<Share>{{4, 8}, {5, 8}}));
    shares.clear();
    assert_true(room.take(5, 4, kAllKinds, shares)); // no leaf has five left: the largest first
    assert_int_equal(std::accumulate(shares.begin(), shares.end(), 0U,
                                     [](auto sum, const Share &s) { return sum + s.gpus; }),
                     20);
    assert_int_equal(room.idle(), 0);
    assert_false(room.take(1, 1, kAllKinds, shares));
}

void a_job_gets_nodes_that_it_may_use(void ** /*state*/) {
    auto nodes = nodes_of(6, 2);
    nodes[2].kind = nodes[3].kind = 1;
    Room room;
    room.reset(nodes, kBlocks, std::array<std::uint32_t, 6>{8, 4, 8, 8, 2, 8});
    assert_int_equal(room.capacity(8, 0b01), 2);
    assert_int_equal(room.capacity(8, 0b10), 2);
    assert_int_equal(room.capacity(8, 0b100), 0);
    std::vector<Share> shares;
    assert_true(room.take(2, 8, 0b01, shares)); // though leaf 1 has room for both
    assert_true((shares == std::vector<Share>{{0, 8}, {5, 8}}));
    shares.clear();
    assert_false(room.take(2, 4, 0b01, shares));
    assert_true(room.take(1, 2, 0b10, shares)); // though node 4 would be left with nothing
    assert_true((shares == std::vector<Share>{{2, 2}}));
    shares.clear();
    shares.clear();
    assert_true(room.take(4, 4, 0b11, shares)); // under two leaves, of two kinds
    assert_true((shares == std::vector<Share>{{3, 8}, {2, 4}, {1, 4}}));
    assert_int_equal(room.idle(), 4);
}

void draining_nodes_have_nothing(void ** /*state*/) {
    auto nodes = nodes_of(2, 2);
    nodes[1].draining = true;
    Room room;
    room.reset(nodes, kBlocks, std::array<std::uint32_t, 2>{4, 8});
    assert_int_equal(room.idle(), 4);
    assert_int_equal(room.capacity(8), 0);
    room.release(1, 3);
    assert_int_equal(room.free(1), 0);
}

void expect_consistent(const Room &room, const std::vector<Node> &nodes,
                       const std::vector<std::uint32_t> &free) {
    std::uint64_t idle = 0;
    for (std::uint32_t node = 0; node < nodes.size(); ++node) {
        assert_int_equal(room.free(node), free[node]);
        idle += free[node];
    }
    assert_int_equal(room.idle(), idle);
    for (const std::uint32_t block : kBlocks) {
        for (Kinds kinds = 0; kinds < 8; ++kinds) {
            std::uint64_t blocks = 0;
            for (std::uint32_t node = 0; node < nodes.size(); ++node)
                blocks += is_among(nodes[node].kind, kinds) ? free[node] / block : 0;
            assert_int_equal(room.capacity(block, kinds), blocks);
        }
    }
    std::size_t listed = 0;
    for (std::uint32_t kind = 0; kind < room.kinds(); ++kind) {
        for (std::uint32_t gpus = 0; gpus <= room.most_gpus(); ++gpus) {
            for (std::uint32_t node = room.first_with(kind, gpus); node != Room::kNone;
                 node = room.next_with(node), ++listed) {
                assert_int_equal(free[node], gpus);
                assert_int_equal(nodes[node].kind, kind);
            }
        }
    }
    assert_int_equal(listed, nodes.size());
}

void anything_that_happens(void ** /*state*/) {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        policy::testing::Random random(seed);
        const std::uint32_t count = random.count(1, 40);
        auto nodes = nodes_of(count, random.count(1, 8));
        for (Node &node : nodes)
            node.kind = node.leaf % 3;
        std::vector<std::uint32_t> free(count);
        for (std::uint32_t &gpus : free)
            gpus = random.count(0, 8);
        Room room;
        room.reset(nodes, kBlocks, free);
        std::vector<std::vector<Share>> taken;
        for (int step = 0; step < 100; ++step) {
            if (random.chance(60)) {
                const std::uint32_t block = kBlocks[random.count(0, 3)];
                const std::uint32_t blocks = random.count(1, 20);
                const Kinds kinds = random.count(1, 7);
                const bool fits = room.capacity(block, kinds) >= blocks;
                std::vector<Share> shares;
                assert_int_equal(room.take(blocks, block, kinds, shares), fits);
                std::uint32_t got = 0;
                for (std::size_t at = 0; at < shares.size(); ++at) {
                    assert_int_equal(shares[at].gpus % block, 0);
                    assert_true(is_among(nodes[shares[at].node].kind, kinds));
                    assert_true(shares[at].gpus <= free[shares[at].node]);
                    free[shares[at].node] -= shares[at].gpus;
                    got += shares[at].gpus;
                    for (std::size_t other = 0; other < at; ++other)
                        assert_true(shares[other].node != shares[at].node);
                }
                assert_int_equal(got, fits ? blocks * block : 0);
                taken.push_back(shares);
            } else if (!taken.empty()) {
                for (const Share &share : taken.back()) {
                    room.release(share.node, share.gpus);
                    free[share.node] += share.gpus;
                }
                taken.pop_back();
            }
            expect_consistent(room, nodes, free);
        }
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_block_goes_where_it_leaves_least),
        cmocka_unit_test(a_gang_stays_under_one_leaf_where_there_is_room),
        cmocka_unit_test(a_job_gets_nodes_that_it_may_use),
        cmocka_unit_test(draining_nodes_have_nothing),
        cmocka_unit_test(anything_that_happens),
    };
    return cmocka_run_group_tests_name("policy_room", tests, nullptr, nullptr);
}
