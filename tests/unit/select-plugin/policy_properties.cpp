// SPDX-License-Identifier: GPL-2.0-or-later
// The invariants of a plan on random clusters: 100,000 small ones, in which everything is scarce, and some
// larger ones.
#include "cmocka.hpp"
#include "policy_invariants.hpp"
#include "policy_random.hpp"

#include <array>
#include <string>

namespace {

using namespace singularity;
using namespace singularity::policy;
using policy::testing::Invariants;
using policy::testing::Random;
using policy::testing::random_rules;
using policy::testing::random_snapshot;
using policy::testing::Shape;

std::string shown(const Snapshot &snapshot, const Plan &plan) {
    std::string text;
    for (std::size_t node = 0; node < snapshot.nodes.size(); ++node)
        text += fmt::format("  node {}: {} GPUs, leaf {}, kind {}{}\n", node, snapshot.nodes[node].gpus,
                            snapshot.nodes[node].leaf, snapshot.nodes[node].kind,
                            snapshot.nodes[node].draining ? ", draining" : "");
    for (const Job &job : snapshot.jobs) {
        text += fmt::format("  job {} {} state {} kinds {:x} size {} movable {} moves {} since {} cost {} "
                            "elapsed {} work {} hour {}:",
                            job.id, name_of(job.tier), static_cast<int>(job.state), job.kinds, job.size,
                            job.movable, job.hour_moves, job.since_move, job.move_cost, job.elapsed,
                            job.work / kOne, job.hour_work / kOne);
        for (const Size &size : snapshot.sizes_of(job))
            text += fmt::format(" {}/{}@{}", size.gpus, size.block, size.speed);
        text += ";";
        for (const Share &share : snapshot.shares_of(job))
            text += fmt::format(" {}x{}", share.node, share.gpus);
        text += "\n";
    }
    for (const Action &action : plan.actions) {
        text += "  -> " + describe(action, snapshot) + ";";
        for (const Share &share : plan.shares_of(action))
            text += fmt::format(" {}x{}", share.node, share.gpus);
        text += "\n";
    }
    return text;
}

struct Tally {
    std::array<std::uint64_t, 5> kinds{};
    std::array<std::uint64_t, 5> reasons{};
    std::uint64_t waits = 0;
    std::uint64_t ways_given = 0; // jobs left below their need for a higher tier's
};

void check(std::uint64_t first_seed, std::uint64_t seeds, const Shape &most, Tally &tally) {
    Planner reused{Rules{}};
    for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
        Random random(seed);
        Shape shape = most;
        shape.nodes = random.count(1, most.nodes);
        shape.leaves = random.count(1, std::min(most.leaves, shape.nodes));
        shape.jobs = random.count(0, most.jobs);
        shape.pending_percent = random.count(5, 80);
        const Snapshot snapshot = random_snapshot(random, shape);
        const Rules rules = random_rules(random);
        if (const std::string defect = defect_of(snapshot); !defect.empty())
            test::fail(fmt::format("seed {}: {}", seed, defect));
        const Plan plan = policy::plan(snapshot, rules);
        if (const std::string violation = Invariants(snapshot, rules, plan).violation(); !violation.empty())
            test::fail(fmt::format("seed {}: {}\n{}", seed, violation, shown(snapshot, plan)));
        for (const Action &action : plan.actions) {
            ++tally.kinds[static_cast<std::size_t>(action.kind)];
            ++tally.reasons[static_cast<std::size_t>(action.reason)];
            const Job &job = snapshot.jobs[action.job];
            const std::uint32_t need = need_of(job, snapshot, rules);
            const bool below = action.kind == ActionKind::kYield || action.size < need;
            if (action.beneficiary != kNobody && need != kNobody && below)
                ++tally.ways_given;
        }
        tally.waits += plan.waits.size();
        // Memory of an earlier plan must not show.
        if (rules == reused.rules()) {
            const Plan &again = reused.plan(snapshot);
            assert_int_equal(again.actions.size(), plan.actions.size());
            assert_true(again.shares == plan.shares);
            for (std::size_t at = 0; at < plan.actions.size(); ++at)
                assert_true(describe(again.actions[at], snapshot) == describe(plan.actions[at], snapshot));
        }
    }
}

// A property of plans in which nothing ever happens would be worth nothing.
void expect_variety(const Tally &tally, std::uint64_t least) {
    for (std::size_t kind = 0; kind < tally.kinds.size(); ++kind) {
        if (tally.kinds[kind] < least)
            test::fail(
                fmt::format("only {} of {}", tally.kinds[kind], name_of(static_cast<ActionKind>(kind))));
    }
    for (std::size_t reason = 0; reason < tally.reasons.size(); ++reason) {
        if (tally.reasons[reason] < least)
            test::fail(
                fmt::format("only {} for {}", tally.reasons[reason], name_of(static_cast<Reason>(reason))));
    }
    assert_true(tally.waits >= least);
    assert_true(tally.ways_given >= least);
}

void small_clusters(void ** /*state*/) {
    Tally tally;
    const std::uint64_t share = test::is_short() ? 5 : 1;
    check(1, 100'000 / share, {.nodes = 6, .gpus = 8, .leaves = 3, .jobs = 12}, tally);
    expect_variety(tally, 1000 / share);
}

void small_nodes(void ** /*state*/) {
    Tally tally;
    const std::uint64_t share = test::is_short() ? 5 : 1;
    check(1'000'000'000, 20'000 / share,
          {.nodes = 8, .gpus = 3, .leaves = 4, .jobs = 16, .large_percent = 50}, tally);
    expect_variety(tally, 100 / share);
}

void large_clusters(void ** /*state*/) {
    Tally tally;
    check(2'000'000, 60, {.nodes = 300, .gpus = 8, .leaves = 20, .jobs = 500, .large_percent = 20}, tally);
    expect_variety(tally, 10);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(small_clusters),
        cmocka_unit_test(small_nodes),
        cmocka_unit_test(large_clusters),
    };
    return cmocka_run_group_tests_name("policy_properties", tests, nullptr, nullptr);
}
