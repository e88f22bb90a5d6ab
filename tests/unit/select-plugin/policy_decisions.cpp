// SPDX-License-Identifier: GPL-2.0-or-later
// What the policy decides in situations that an administrator would describe in a sentence. Every test is one
// such sentence.
#include "cmocka.hpp"
#include "policy_invariants.hpp"

#include <initializer_list>
#include <string>
#include <vector>

namespace {

using namespace singularity;
using namespace singularity::policy;
using test::expect_contains;
using test::expect_equal;

Size fixed(std::uint32_t gpus, std::uint32_t block) { return {.gpus = gpus, .block = block, .speed = kOne}; }

// An elastic job of one node: 2, 4 or 8 GPUs.
const std::vector<Size> kElastic{{2, 2, 300'000}, {4, 4, 600'000}, {8, 8, kOne}};

// A cluster in the making. Jobs have ids 1, 2, 3 in the order in which they are added.
struct Cluster {
    Snapshot snapshot;
    Rules rules;

    explicit Cluster(std::uint32_t nodes, std::uint32_t of_leaf = 64) {
        for (std::uint32_t node = 0; node < nodes; ++node)
            snapshot.nodes.push_back({.gpus = 8, .leaf = node / of_leaf});
    }

    // A job that has run for two hours as promised and may be moved.
    Job &running(Tier tier, const std::vector<Size> &sizes, std::uint32_t size,
                 std::initializer_list<Share> shares) {
        Job job{.id = snapshot.jobs.size() + 1, .tier = tier, .state = JobState::kRunning, .size = size};
        job.elapsed = 2 * kHour;
        job.work = job.elapsed * kOne;
        job.hour_elapsed = kHour;
        job.hour_work = kHour * kOne;
        job.gpu_time = 2 * kHour * sizes[size].gpus;
        job.since_move = kHour;
        job.since_checkpoint = kHour;
        job.move_cost = 30 * kSecond;
        return snapshot.jobs[snapshot.add(job, sizes, {shares.begin(), shares.size()})];
    }
    Job &running(Tier tier, Size size, std::initializer_list<Share> shares) {
        return running(tier, std::vector<Size>{size}, 0, shares);
    }
    Job &pending(Tier tier, const std::vector<Size> &sizes) {
        Job job{.id = snapshot.jobs.size() + 1, .tier = tier};
        job.move_cost = 30 * kSecond;
        return snapshot.jobs[snapshot.add(job, sizes)];
    }
    Job &pending(Tier tier, Size size) { return pending(tier, std::vector<Size>{size}); }

    // The actions as "yield 1; start 2 0x8", which keeps all invariants.
    [[nodiscard]] std::string plan() const {
        expect_equal(defect_of(snapshot), "");
        const Plan plan = policy::plan(snapshot, rules);
        expect_equal(policy::testing::Invariants(snapshot, rules, plan).violation(), "");
        std::string text;
        for (const Action &action : plan.actions) {
            text += fmt::format("{}{} {}", text.empty() ? "" : "; ", name_of(action.kind),
                                snapshot.jobs[action.job].id);
            for (const Share &share : plan.shares_of(action))
                text += fmt::format(" {}x{}", share.node, share.gpus);
        }
        return text;
    }
};

void an_idle_cluster_starts_what_comes(void ** /*state*/) {
    Cluster cluster(2);
    cluster.pending(Tier::kBasic, fixed(8, 8));
    cluster.pending(Tier::kPremium, fixed(4, 4));
    expect_equal(cluster.plan(), "start 2 0x4; start 1 1x8");
}

void premium_takes_from_basic_before_standard(void ** /*state*/) {
    Cluster cluster(3);
    cluster.running(Tier::kStandard, fixed(8, 8), {{0, 8}});
    cluster.running(Tier::kBasic, fixed(8, 8), {{1, 8}});
    cluster.running(Tier::kPremium, fixed(8, 8), {{2, 8}});
    cluster.pending(Tier::kPremium, fixed(8, 8));
    expect_equal(cluster.plan(), "yield 2; start 4 1x8");
}

void premium_takes_from_standard_as_far_as_its_guarantee_allows(void ** /*state*/) {
    Cluster cluster(1);
    cluster.rules.strict_tiers = false;
    cluster.running(Tier::kStandard, fixed(8, 8), {{0, 8}});
    cluster.pending(Tier::kPremium, fixed(8, 8));
    expect_equal(cluster.plan(), "yield 1; start 2 0x8");
    // Just at its guarantee in the last hour, whatever it received before.
    cluster.snapshot.jobs[0].hour_work = kHour * 700'000;
    expect_equal(cluster.plan(), "");
}

// Jobs that run just at their guarantees: they need what they have.
Cluster with_needs(std::initializer_list<Tier> tiers) {
    Cluster cluster(static_cast<std::uint32_t>(tiers.size()));
    std::uint32_t node = 0;
    for (const Tier tier : tiers) {
        Job &job = cluster.running(tier, kElastic, 2, {{node++, 8}});
        job.hour_work = kHour * cluster.rules.of(tier).guarantee;
    }
    return cluster;
}

void where_guarantees_exceed_the_cluster_premium_comes_first(void ** /*state*/) {
    Cluster cluster = with_needs({Tier::kPremium, Tier::kStandard, Tier::kStandard});
    cluster.snapshot.jobs[2].since_checkpoint = kMinute;
    cluster.pending(Tier::kPremium, fixed(8, 8));
    expect_equal(cluster.plan(), "yield 3; start 4 2x8");
    cluster.rules.strict_tiers = false;
    expect_equal(cluster.plan(), "");
}

void what_is_needed_is_taken_last(void ** /*state*/) {
    Cluster cluster = with_needs({Tier::kStandard, Tier::kStandard});
    cluster.snapshot.nodes.push_back({.gpus = 8});
    // More of it in one place does not count: first what nobody needs, even if two must give it.
    cluster.running(Tier::kStandard, fixed(4, 4), {{2, 4}});
    cluster.running(Tier::kPremium, fixed(4, 4), {{2, 4}});
    cluster.pending(Tier::kPremium, fixed(8, 8));
    cluster.snapshot.jobs[3].work +=
        cluster.snapshot.jobs[3].elapsed * kOne; // so far above that it can pause
    cluster.snapshot.jobs[3].hour_work += kHour * kOne;
    expect_equal(cluster.plan(), "yield 3; yield 4; start 5 2x8");
}

void who_gives_way_shrinks_if_that_is_enough(void ** /*state*/) {
    Cluster cluster = with_needs({Tier::kStandard});
    cluster.pending(Tier::kPremium, fixed(4, 4));
    expect_equal(cluster.plan(), "shrink 1 0x4; start 2 0x4");
}

void nobody_gives_way_to_his_own_tier(void ** /*state*/) {
    for (const Tier tier : {Tier::kPremium, Tier::kStandard}) {
        Cluster cluster = with_needs({tier});
        cluster.pending(tier, fixed(8, 8));
        expect_equal(cluster.plan(), "");
    }
    Cluster cluster = with_needs({Tier::kPremium});
    cluster.pending(Tier::kStandard, fixed(8, 8));
    expect_equal(cluster.plan(), "");
}

void a_gang_takes_from_many_what_they_need(void ** /*state*/) {
    Cluster cluster = with_needs({Tier::kStandard, Tier::kStandard, Tier::kStandard});
    cluster.snapshot.jobs[1].since_move = kMinute; // not yet
    cluster.pending(Tier::kPremium, fixed(16, 8));
    expect_equal(cluster.plan(), "yield 1; yield 3; start 4 2x8 0x8");
    cluster.snapshot.jobs[2].hour_moves = 4; // not again
    expect_equal(cluster.plan(), "");
}

void shrinking_comes_before_preempting(void ** /*state*/) {
    Cluster cluster(2);
    cluster.running(Tier::kBasic, fixed(4, 4), {{0, 4}});
    cluster.running(Tier::kBasic, fixed(4, 4), {{0, 4}});
    cluster.running(Tier::kStandard, kElastic, 2, {{1, 8}});
    cluster.pending(Tier::kPremium, fixed(4, 4));
    expect_equal(cluster.plan(), "shrink 3 1x4; start 4 1x4");
}

void nobody_shrinks_further_than_needed(void ** /*state*/) {
    Cluster cluster(1);
    cluster.running(Tier::kBasic, kElastic, 2, {{0, 8}});
    cluster.pending(Tier::kPremium, fixed(1, 1));
    // To 4 and not to 2; what is left idle after that helps nobody.
    expect_equal(cluster.plan(), "shrink 1 0x4; start 2 0x1");
}

void the_freshest_checkpoint_is_preempted(void ** /*state*/) {
    Cluster cluster(3);
    cluster.running(Tier::kBasic, fixed(8, 8), {{0, 8}});
    cluster.running(Tier::kBasic, fixed(8, 8), {{1, 8}});
    cluster.running(Tier::kBasic, fixed(8, 8), {{2, 8}});
    cluster.snapshot.jobs[1].since_checkpoint = kMinute;
    cluster.pending(Tier::kPremium, fixed(8, 8));
    expect_equal(cluster.plan(), "yield 2; start 4 1x8");
}

void one_large_victim_rather_than_many_small(void ** /*state*/) {
    Cluster cluster(3);
    for (int job = 0; job < 4; ++job)
        cluster.running(Tier::kBasic, fixed(2, 2), {{0, 2}});
    cluster.running(Tier::kBasic, fixed(16, 8), {{1, 8}, {2, 8}});
    cluster.pending(Tier::kPremium, fixed(8, 8));
    expect_equal(cluster.plan(), "yield 5; start 6 2x8");
    // But the gang that is as large as what is wanted before one that is larger.
    Cluster other(3);
    other.running(Tier::kBasic, fixed(16, 8), {{1, 8}, {2, 8}});
    other.running(Tier::kBasic, fixed(8, 8), {{0, 8}});
    other.pending(Tier::kPremium, fixed(8, 8));
    expect_equal(other.plan(), "yield 2; start 3 0x8");
}

void a_gang_preempts_gangs(void ** /*state*/) {
    Cluster cluster(6);
    for (std::uint32_t node = 0; node < 4; ++node)
        cluster.running(Tier::kBasic, fixed(8, 8), {{node, 8}});
    cluster.running(Tier::kBasic, fixed(16, 8), {{4, 8}, {5, 8}});
    cluster.pending(Tier::kPremium, fixed(16, 8));
    expect_equal(cluster.plan(), "yield 5; start 6 5x8 4x8");
}

void budgets_and_least_run_protect(void ** /*state*/) {
    Cluster cluster(1);
    cluster.running(Tier::kBasic, fixed(8, 8), {{0, 8}});
    cluster.pending(Tier::kPremium, fixed(8, 8));
    cluster.snapshot.jobs[0].hour_moves = 12;
    expect_equal(cluster.plan(), "");
    cluster.snapshot.jobs[0].hour_moves = 11;
    expect_equal(cluster.plan(), "yield 1; start 2 0x8");
    cluster.snapshot.jobs[0].since_move = 59 * kSecond;
    expect_equal(cluster.plan(), "");
    cluster.snapshot.jobs[0].since_move = kMinute;
    cluster.snapshot.jobs[0].movable = false;
    expect_equal(cluster.plan(), "");
}

void less_is_given_where_there_is_less(void ** /*state*/) {
    Cluster cluster(1);
    cluster.running(Tier::kPremium, fixed(4, 4), {{0, 4}});
    cluster.pending(Tier::kStandard, kElastic);
    expect_equal(cluster.plan(), "start 2 0x4");
}

void the_higher_tier_comes_first_or_else_the_furthest_below(void ** /*state*/) {
    Cluster cluster(1);
    cluster.pending(Tier::kStandard, fixed(8, 8));
    cluster.pending(Tier::kPremium, fixed(8, 8));
    expect_equal(cluster.plan(), "start 2 0x8");
    // Premium that has been served until now is less far below than standard that never was.
    Job &premium = cluster.snapshot.jobs[1];
    premium.elapsed = premium.hour_elapsed = 10 * kMinute;
    premium.work = premium.hour_work = 5 * kMinute * kOne;
    expect_equal(cluster.plan(), "start 2 0x8");
    cluster.rules.strict_tiers = false;
    expect_equal(cluster.plan(), "start 1 0x8");
}

void jobs_grow_into_idle_gpus(void ** /*state*/) {
    Cluster cluster(2);
    cluster.running(Tier::kBasic, kElastic, 0, {{0, 2}});
    cluster.running(Tier::kBasic, fixed(4, 4), {{1, 4}});
    expect_equal(cluster.plan(), "grow 1 0x8");
    // Not if they have been moved as often as may be for convenience, or it costs more than it brings.
    cluster.snapshot.jobs[0].hour_moves = 6;
    expect_equal(cluster.plan(), "");
    cluster.snapshot.jobs[0].hour_moves = 5;
    cluster.snapshot.jobs[0].move_cost = 11 * kMinute;
    expect_equal(cluster.plan(), "");
}

void starting_comes_before_growing(void ** /*state*/) {
    Cluster cluster(1);
    cluster.running(Tier::kBasic, kElastic, 0, {{0, 2}});
    cluster.pending(Tier::kBasic, fixed(4, 4));
    expect_equal(cluster.plan(), "start 2 0x4; grow 1 0x4");
}

void smaller_jobs_move_aside_for_a_large_one(void ** /*state*/) {
    Cluster cluster(2);
    cluster.running(Tier::kBasic, fixed(4, 4), {{0, 4}});
    cluster.running(Tier::kBasic, fixed(4, 4), {{1, 4}});
    cluster.running(Tier::kBasic, fixed(2, 2), {{1, 2}});
    Job &large = cluster.pending(Tier::kBasic, fixed(8, 8));
    large.gpu_time = 1000 * kHour; // it could not take anything from anybody
    expect_equal(cluster.plan(), "");
    // Ten GPUs are not in use, two too few in one piece: with a third node, one job moves.
    cluster.snapshot.nodes.push_back({.gpus = 4, .leaf = 0});
    expect_equal(cluster.plan(), "migrate 1 2x4; start 4 0x8");
    // Waiting two minutes costs 16 GPU minutes; moving four GPUs for five costs more.
    cluster.snapshot.jobs[0].move_cost = cluster.snapshot.jobs[1].move_cost = 5 * kMinute;
    expect_equal(cluster.plan(), "");
    // Having waited for half an hour makes it worth while.
    cluster.snapshot.jobs[3].elapsed = cluster.snapshot.jobs[3].hour_elapsed = kHour / 2;
    expect_equal(cluster.plan(), "migrate 1 2x4; start 4 0x8");
}

void jobs_leave_draining_nodes(void ** /*state*/) {
    Cluster cluster(2);
    cluster.snapshot.nodes[0].draining = true;
    cluster.running(Tier::kPremium, fixed(4, 4), {{0, 4}});
    cluster.running(Tier::kBasic, kElastic, 2, {{1, 8}});
    // Nothing is idle and nobody is interrupted for it, until there is room.
    expect_equal(cluster.plan(), "");
    cluster.snapshot.nodes.push_back({.gpus = 8, .leaf = 0});
    expect_equal(cluster.plan(), "migrate 1 2x4");
}

void jobs_on_the_way_are_left_alone(void ** /*state*/) {
    Cluster cluster(1);
    cluster.running(Tier::kBasic, fixed(8, 8), {{0, 8}}).state = JobState::kMoving;
    cluster.pending(Tier::kPremium, fixed(8, 8));
    expect_equal(cluster.plan(), "");
}

void new_jobs_come_before_those_that_had_much(void ** /*state*/) {
    Cluster cluster(1);
    cluster.running(Tier::kBasic, fixed(8, 8), {{0, 8}}); // 16 GPU hours
    cluster.pending(Tier::kBasic, fixed(8, 8));
    expect_equal(cluster.plan(), "yield 1; start 2 0x8");
    // As much received: they do not take turns.
    cluster.snapshot.jobs[1].gpu_time = 17 * kHour;
    expect_equal(cluster.plan(), "");
    // Never at the expense of a tier with a guarantee.
    cluster.snapshot.jobs[1].gpu_time = 0;
    cluster.snapshot.jobs[0].tier = Tier::kStandard;
    expect_equal(cluster.plan(), "");
}

void elastic_jobs_share_with_new_ones(void ** /*state*/) {
    Cluster cluster(1);
    cluster.running(Tier::kBasic, kElastic, 2, {{0, 8}}).gpu_time = 0;
    cluster.pending(Tier::kBasic, kElastic);
    expect_equal(cluster.plan(), "shrink 1 0x4; start 2 0x4");
}

void gangs_stay_under_one_leaf(void ** /*state*/) {
    Cluster cluster(6, 3);
    cluster.running(Tier::kBasic, fixed(8, 8), {{1, 8}});
    cluster.pending(Tier::kBasic, fixed(24, 8));
    expect_equal(cluster.plan(), "start 2 3x8 4x8 5x8");
}

// Nodes 0 and 1 for all, the others for who may use them.
Cluster with_kinds(std::uint32_t nodes) {
    Cluster cluster(nodes, 1);
    for (std::uint32_t node = 2; node < nodes; ++node)
        cluster.snapshot.nodes[node].kind = 1;
    return cluster;
}

void room_is_made_where_the_job_may_be(void ** /*state*/) {
    Cluster cluster = with_kinds(4);
    for (std::uint32_t node = 0; node < 4; ++node)
        cluster.running(Tier::kBasic, fixed(8, 8), {{node, 8}});
    for (const std::size_t job : {0U, 1U})
        cluster.snapshot.jobs[job].since_checkpoint = kMinute; // better victims, if they helped
    cluster.pending(Tier::kPremium, fixed(8, 8)).kinds = 0b10;
    expect_equal(cluster.plan(), "yield 3; start 5 2x8");
    cluster.snapshot.jobs[4].kinds = 0b01;
    expect_equal(cluster.plan(), "yield 1; start 5 0x8");
}

void a_gang_that_is_mostly_elsewhere_is_no_victim(void ** /*state*/) {
    Cluster cluster = with_kinds(6);
    cluster.running(Tier::kBasic, fixed(24, 8), {{0, 8}, {1, 8}, {2, 8}});
    for (const std::uint32_t node : {3U, 4U, 5U})
        cluster.running(Tier::kBasic, fixed(8, 8), {{node, 8}});
    cluster.pending(Tier::kPremium, fixed(24, 8)).kinds = 0b10;
    expect_equal(cluster.plan(), "yield 2; yield 3; yield 4; start 5 3x8 4x8 5x8");
}

void nobody_moves_aside_to_where_he_may_not_be(void ** /*state*/) {
    Cluster cluster = with_kinds(4);
    cluster.running(Tier::kBasic, fixed(8, 8), {{0, 8}}).movable = false;
    cluster.running(Tier::kBasic, fixed(4, 4), {{1, 4}}).kinds = 0b01;
    cluster.running(Tier::kBasic, fixed(4, 4), {{2, 4}}).kinds = 0b10;
    cluster.running(Tier::kBasic, fixed(4, 4), {{3, 4}}).kinds = 0b11;
    for (const std::size_t job : {1U, 2U})
        cluster.snapshot.jobs[job].gpu_time = 0;
    cluster.pending(Tier::kPremium, fixed(8, 8)).kinds = 0b01;
    // The one on node 1 has nowhere to go, and gives way.
    expect_equal(cluster.plan(), "yield 2; start 5 1x8");
    cluster.snapshot.jobs[4].kinds = 0b10;
    expect_equal(cluster.plan(), "migrate 3 3x4; start 5 2x8");
}

void what_it_may_not_use_is_no_room(void ** /*state*/) {
    Cluster cluster = with_kinds(3);
    cluster.pending(Tier::kPremium, fixed(16, 8)).kinds = 0b10;
    cluster.pending(Tier::kPremium, fixed(8, 8)).kinds = 0b100;
    expect_equal(cluster.plan(), "");
    const Plan plan = policy::plan(cluster.snapshot, cluster.rules);
    assert_int_equal(plan.waits.size(), 2);
    for (const Wait &wait : plan.waits)
        assert_true(wait.obstacle == Obstacle::kTooLarge);
}

void what_cannot_be_is_said(void ** /*state*/) {
    Cluster cluster(2);
    cluster.pending(Tier::kPremium, fixed(24, 8));
    cluster.running(Tier::kPremium, fixed(16, 8), {{0, 8}, {1, 8}});
    cluster.snapshot.jobs[1].movable = false;
    cluster.pending(Tier::kPremium, fixed(8, 8));
    const Plan plan = policy::plan(cluster.snapshot, cluster.rules);
    assert_int_equal(plan.waits.size(), 2);
    expect_equal(describe(plan.waits[0], cluster.snapshot),
                 "job 1 (premium) waits: even its smallest size is more than the cluster has in such blocks, "
                 "95.0 % below its "
                 "guarantee");
    expect_equal(
        describe(plan.waits[1], cluster.snapshot),
        "job 3 (premium) waits: nothing is idle or may be taken that would help, 95.0 % below its guarantee");
}

void actions_are_explained(void ** /*state*/) {
    Cluster cluster(1);
    cluster.running(Tier::kBasic, kElastic, 2, {{0, 8}});
    cluster.pending(Tier::kPremium, fixed(6, 2));
    const Plan plan = policy::plan(cluster.snapshot, cluster.rules);
    assert_int_equal(plan.actions.size(), 2);
    expect_equal(
        describe(plan.actions[0], cluster.snapshot),
        "shrink job 1 (basic), 8 to 2 GPUs: makes room for job 2 (premium), 95.0 % below its guarantee");
    expect_equal(describe(plan.actions[1], cluster.snapshot),
                 "start job 2 (premium), 6 GPUs: its guarantee, 95.0 % below its guarantee");
}

void defects_are_named(void ** /*state*/) {
    const auto defect = [](auto change) {
        Cluster cluster(2);
        cluster.running(Tier::kBasic, kElastic, 2, {{0, 8}});
        cluster.running(Tier::kBasic, fixed(16, 8), {{1, 8}}).state = JobState::kMoving;
        cluster.pending(Tier::kBasic, kElastic);
        expect_equal(defect_of(cluster.snapshot), "");
        change(cluster.snapshot);
        std::string found = defect_of(cluster.snapshot);
        assert_true(policy::plan(cluster.snapshot, cluster.rules).actions.empty() || found.empty());
        return found;
    };
    expect_contains(defect([](Snapshot &s) { s.nodes[0].gpus = 65; }), "node 0 has 65 GPUs");
    expect_contains(defect([](Snapshot &s) { s.nodes[1].leaf = 9; }), "node 1 is under leaf 9");
    expect_contains(defect([](Snapshot &s) { s.nodes[0].kind = kMostKinds; }), "node 0 is of kind 64");
    expect_contains(defect([](Snapshot &s) { s.nodes[1].kind = 1; }), "leaf 0 has nodes of kinds 0 and 1");
    expect_contains(defect([](Snapshot &s) { s.jobs[0].kinds = 0b10; }), "of node 0, which it may not use");
    expect_contains(defect([](Snapshot &s) { s.nodes[0].gpus = 4; }),
                    "job 1 has a share of 8 GPUs of node 0");
    expect_contains(defect([](Snapshot &s) { s.shares[0].node = 2; }), "node 2, which does not exist");
    expect_contains(defect([](Snapshot &s) { s.shares[0].gpus = 4; }),
                    "job 1 has 4 GPUs, not the 8 of its size");
    expect_contains(defect([](Snapshot &s) { s.sizes[1].block = 3; }), "blocks of 3 GPUs do not make 4");
    expect_contains(defect([](Snapshot &s) { s.sizes[2].speed = kOne / 2; }), "job 1 size 2 is not above");
    expect_contains(defect([](Snapshot &s) { s.jobs[2].sizes = 2; }),
                    "job 3 the size that it asked for has speed 600000");
    expect_contains(defect([](Snapshot &s) { s.jobs[2].first_size = 5; }), "ranges outside of the snapshot");
    expect_contains(defect([](Snapshot &s) { s.jobs[2].move_cost = -1; }), "a time of -1 ms");
    expect_contains(defect([](Snapshot &s) { s.jobs[1].state = JobState::kPending; }),
                    "is pending and has shares");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_cluster_starts_what_comes),
        cmocka_unit_test(premium_takes_from_basic_before_standard),
        cmocka_unit_test(premium_takes_from_standard_as_far_as_its_guarantee_allows),
        cmocka_unit_test(shrinking_comes_before_preempting),
        cmocka_unit_test(nobody_shrinks_further_than_needed),
        cmocka_unit_test(the_freshest_checkpoint_is_preempted),
        cmocka_unit_test(one_large_victim_rather_than_many_small),
        cmocka_unit_test(a_gang_preempts_gangs),
        cmocka_unit_test(budgets_and_least_run_protect),
        cmocka_unit_test(less_is_given_where_there_is_less),
        cmocka_unit_test(the_higher_tier_comes_first_or_else_the_furthest_below),
        cmocka_unit_test(where_guarantees_exceed_the_cluster_premium_comes_first),
        cmocka_unit_test(what_is_needed_is_taken_last),
        cmocka_unit_test(who_gives_way_shrinks_if_that_is_enough),
        cmocka_unit_test(nobody_gives_way_to_his_own_tier),
        cmocka_unit_test(a_gang_takes_from_many_what_they_need),
        cmocka_unit_test(jobs_grow_into_idle_gpus),
        cmocka_unit_test(starting_comes_before_growing),
        cmocka_unit_test(smaller_jobs_move_aside_for_a_large_one),
        cmocka_unit_test(jobs_leave_draining_nodes),
        cmocka_unit_test(jobs_on_the_way_are_left_alone),
        cmocka_unit_test(new_jobs_come_before_those_that_had_much),
        cmocka_unit_test(elastic_jobs_share_with_new_ones),
        cmocka_unit_test(gangs_stay_under_one_leaf),
        cmocka_unit_test(room_is_made_where_the_job_may_be),
        cmocka_unit_test(a_gang_that_is_mostly_elsewhere_is_no_victim),
        cmocka_unit_test(nobody_moves_aside_to_where_he_may_not_be),
        cmocka_unit_test(what_it_may_not_use_is_no_room),
        cmocka_unit_test(what_cannot_be_is_said),
        cmocka_unit_test(actions_are_explained),
        cmocka_unit_test(defects_are_named),
    };
    return cmocka_run_group_tests_name("policy_decisions", tests, nullptr, nullptr);
}
