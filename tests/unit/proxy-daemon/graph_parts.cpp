// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs with collectives, cut into what comes between them.
#include "graph_parts.hpp"

#include "cmocka.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

using namespace singularity;
using namespace singularity::proxyd;

namespace {

using Nodes = std::vector<std::uint64_t>;
using Edges = std::vector<GraphEdge>;

void expect(const GraphPart &part, Nodes nodes, std::size_t after) {
    auto found = part.nodes;
    std::ranges::sort(found);
    assert_true(found == nodes);
    assert_int_equal(part.after, after);
}

void a_chain_is_cut_at_its_collectives(void ** /*state*/) {
    const auto parts = parts_of(Nodes{5, 4, 3, 2, 1}, Edges{{1, 2}, {2, 3}, {3, 4}, {4, 5}}, Nodes{2, 4});
    assert_true(parts.has_value());
    assert_int_equal(parts->size(), 3);
    expect((*parts)[0], {1}, 0);
    expect((*parts)[1], {3}, 1);
    expect((*parts)[2], {5}, 2);
}

void collectives_may_follow_each_other(void ** /*state*/) {
    const auto parts = parts_of(Nodes{1, 2}, Edges{{1, 2}}, Nodes{1, 2});
    assert_true(parts.has_value());
    assert_int_equal(parts->size(), 3);
    for (const auto &part : *parts)
        expect(part, {}, 0);
}

// What a collective does not need is not in front of it, and what needs none of it does not come after it.
void work_beside_a_collective_waits_for_nothing(void ** /*state*/) {
    // 1 -> 10 (collective) -> 4; 1 -> 2 -> 11 (collective) -> 4; 3 alone
    const auto parts =
        parts_of(Nodes{1, 2, 3, 4, 10, 11}, Edges{{1, 10}, {1, 2}, {2, 11}, {10, 4}, {11, 4}}, Nodes{10, 11});
    assert_true(parts.has_value());
    expect((*parts)[0], {1}, 0);
    expect((*parts)[1], {2}, 0);
    expect((*parts)[2], {3, 4}, 2);
}

void an_order_that_the_edges_do_not_allow_is_none(void ** /*state*/) {
    assert_false(parts_of(Nodes{1, 2, 3}, Edges{{2, 3}, {3, 1}}, Nodes{1, 2}).has_value());
    assert_false(parts_of(Nodes{1, 2}, Edges{{1, 2}, {2, 1}}, Nodes{}).has_value()); // no graph
    assert_false(parts_of(Nodes{1, 2}, Edges{{1, 3}}, Nodes{2}).has_value()); // nor these: unknown nodes
    assert_false(parts_of(Nodes{1, 2}, Edges{}, Nodes{3}).has_value());
}

// Of any graph: every node is in one part; whatever it comes after is in its part or done before it.
void parts_keep_what_comes_before_what(void ** /*state*/) {
    std::mt19937 chance(7);
    for (int round = 0; round < 300; ++round) {
        const std::size_t size = 2 + chance() % 40;
        Nodes nodes(size);
        for (std::size_t at = 0; at < size; ++at)
            nodes[at] = at + 1;
        Edges edges;
        for (std::uint64_t to = 2; to <= size; ++to)
            for (std::uint64_t from = 1; from < to; ++from)
                if (chance() % (size / 2 + 1) == 0)
                    edges.emplace_back(from, to);
        Nodes collectives;
        std::map<std::uint64_t, std::size_t> number;
        for (const auto node : nodes)
            if (chance() % 4 == 0) {
                number.emplace(node, collectives.size());
                collectives.push_back(node);
            }
        std::ranges::shuffle(nodes, chance);
        const auto parts = parts_of(nodes, edges, collectives);
        assert_true(parts.has_value());
        assert_int_equal(parts->size(), collectives.size() + 1);
        std::map<std::uint64_t, std::size_t> part_of;
        for (std::size_t part = 0; part < parts->size(); ++part)
            for (const auto node : (*parts)[part].nodes)
                assert_true(part_of.emplace(node, part).second);
        assert_int_equal(part_of.size() + collectives.size(), size);
        for (const auto &[from, to] : edges) {
            const auto first = number.find(from);
            const auto second = number.find(to);
            if (first == number.end() && second == number.end()) {
                assert_true(part_of[from] <= part_of[to]);
            } else if (first == number.end()) {
                assert_true(part_of[from] <= second->second);
            } else if (second == number.end()) {
                assert_true(first->second < part_of[to]);
                assert_true(first->second < (*parts)[part_of[to]].after);
            } else {
                assert_true(first->second < second->second);
            }
        }
        for (std::size_t part = 0; part < parts->size(); ++part)
            assert_true((*parts)[part].after <= part);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_cut_at_its_collectives),
        cmocka_unit_test(collectives_may_follow_each_other),
        cmocka_unit_test(work_beside_a_collective_waits_for_nothing),
        cmocka_unit_test(an_order_that_the_edges_do_not_allow_is_none),
        cmocka_unit_test(parts_keep_what_comes_before_what),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
