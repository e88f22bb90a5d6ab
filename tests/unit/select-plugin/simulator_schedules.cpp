// SPDX-License-Identifier: GPL-2.0-or-later
// Schedules small enough to be worked out by hand, for each policy. One node of 8 GPUs; 10 s to save, 20 s to
// restore.
#include "simulator_helpers.hpp"

namespace {

using namespace singularity;
using simulator::Tier;
using test::end_of;
using test::expect_seconds;
using test::job;
using test::kPlain;
using test::simulated;

// Killed at 90 min, 30 min after its hourly checkpoint. The other runs until 100 min; then 20 s and the 40
// min that are left.
void slurm_loses_work_since_the_hourly_checkpoint(void ** /*state*/) {
    const auto jobs =
        simulated(kPlain, {job(0, 0, 8, 6000, Tier::kBasic), job(1, 5400, 8, 600, Tier::kPremium)}, "slurm");
    expect_seconds(end_of(jobs[1]), 6000);
    expect_seconds(end_of(jobs[0]), 6000 + 20 + 2400);
    assert_int_equal(jobs[0].kills, 1);
    expect_seconds(jobs[0].lost_again / 8 / simulator::kSecond, 1800);
    expect_seconds(jobs[0].lost_moving / 8 / simulator::kSecond, 20);
    expect_seconds(jobs[0].useful / 8 / simulator::kSecond, 6000);
}

// 1 waits for all 8 GPUs until 100 s. 3 ends before that and goes first; 2 would not, and waits until 110 s.
void slurm_backfills_only_what_does_not_delay_the_first(void ** /*state*/) {
    const auto jobs = simulated(kPlain,
                                {job(0, 0, 4, 100, Tier::kStandard), job(1, 1, 8, 10, Tier::kStandard),
                                 job(2, 2, 4, 100, Tier::kStandard), job(3, 3, 4, 90, Tier::kStandard)},
                                "slurm");
    expect_seconds(end_of(jobs[0]), 100);
    expect_seconds(end_of(jobs[1]), 110);
    expect_seconds(end_of(jobs[2]), 210);
    expect_seconds(end_of(jobs[3]), 93);
}

// Standard does not preempt standard, and basic never preempts.
void slurm_preempts_lower_tiers_only(void ** /*state*/) {
    const auto jobs = simulated(kPlain,
                                {job(0, 0, 8, 100, Tier::kStandard), job(1, 10, 8, 50, Tier::kStandard),
                                 job(2, 20, 8, 50, Tier::kBasic)},
                                "slurm");
    expect_seconds(end_of(jobs[0]), 100);
    expect_seconds(end_of(jobs[1]), 150);
    expect_seconds(end_of(jobs[2]), 200);
}

// After 100 s job 0 has had 800 GPU seconds and is behind job 1, which comes at 150 s. Saved until 160 s; 1
// runs until 210 s; restored until 230 s, 150 s are left.
void tiresias_lets_the_one_with_less_service_go_first(void ** /*state*/) {
    const auto jobs =
        simulated(kPlain, {job(0, 0, 8, 300, Tier::kPremium), job(1, 150, 8, 50, Tier::kBasic)}, "tiresias");
    expect_seconds(end_of(jobs[1]), 210);
    expect_seconds(end_of(jobs[0]), 380);
    assert_int_equal(jobs[0].moves, 1);
    expect_seconds(jobs[0].lost_again, 0);
}

// At 50 s job 0 has had 400 GPU seconds: both are in the first queue, where the earlier one goes first.
void tiresias_keeps_the_order_of_submission_within_a_queue(void ** /*state*/) {
    const auto jobs =
        simulated(kPlain, {job(0, 0, 8, 90, Tier::kBasic), job(1, 50, 8, 50, Tier::kPremium)}, "tiresias");
    expect_seconds(end_of(jobs[0]), 90);
    expect_seconds(end_of(jobs[1]), 140);
    assert_int_equal(jobs[0].moves, 0);
}

// Job 0 halves at 40 s with 60 s left: 10 + 20 s still, then at half the speed: 40 + 30 + 120. Job 1 begins
// at 50 s on the 4 GPUs that were given up. When job 0 ends, at 190 s, job 1 has 30 s left at full speed:
// growing would cost as much.
void elastic_shrinks_to_let_another_in(void ** /*state*/) {
    const auto jobs =
        simulated(kPlain, {job(0, 0, 8, 100, Tier::kBasic), job(1, 40, 8, 100, Tier::kBasic)}, "elastic");
    expect_seconds(end_of(jobs[0]), 190);
    expect_seconds(end_of(jobs[1]), 250);
    assert_int_equal(jobs[0].moves, 1);
    assert_int_equal(jobs[1].moves, 0);
    expect_seconds(jobs[1].lost_moving / 4 / simulator::kSecond, 10);
}

// The premium job gets its 4 GPUs 10 s after it comes, once they are saved. The basic job runs on the other 4
// from 1830 s, and on all 8 again when the premium job has ended: 2410 + 30 s, with 7200 - 1800 - 580 / 2 s
// left.
void singularity_shrinks_basic_for_premium_and_grows_it_back(void ** /*state*/) {
    const auto jobs = simulated(
        kPlain, {job(0, 0, 8, 7200, Tier::kBasic), job(1, 1800, 4, 600, Tier::kPremium)}, "singularity");
    expect_seconds(end_of(jobs[1]), 2410);
    expect_seconds(end_of(jobs[0]), 2440 + 7200 - 1800 - 290);
    assert_int_equal(jobs[0].moves, 2);
    expect_seconds(jobs[0].lost_again, 0);
}

// Alone, a job runs as if there were no scheduler, whichever it is.
void alone_a_job_takes_its_own_time(void ** /*state*/) {
    for (const auto &policy : simulator::policies()) {
        const auto jobs = simulated(kPlain, {job(0, 7, 8, 5000, Tier::kStandard)}, policy.name);
        expect_seconds(end_of(jobs[0]), 5007);
        assert_int_equal(jobs[0].moves, 0);
    }
}

// 16 GPUs on a cluster of 8: a job of 16 that cannot be resized is refused, and the others do not wait for
// it.
void too_large_a_job_is_reported(void ** /*state*/) {
    const std::string text = std::string(kPlain) + "tiers: {window: 1h}\n";
    std::string rigid = text;
    rigid.replace(rigid.find("splice_overhead: 0"), 18, "splice_overhead: 0, share: 0");
    for (const auto &policy : simulator::policies()) {
        const auto jobs = simulated(
            rigid, {job(0, 0, 16, 100, Tier::kPremium), job(1, 1, 8, 100, Tier::kBasic)}, policy.name);
        assert_int_equal(jobs[0].state, simulator::JobState::kRejected);
        assert_int_equal(jobs[1].state, simulator::JobState::kFinished);
        expect_seconds(end_of(jobs[1]), 101);
    }
}

// Nobody has 16 GPUs, but a job that can be resized needs only 4 of them for its 16 ranks at 4 a GPU, and can
// use 8.
void a_resizable_job_runs_on_less_than_it_asked_for(void ** /*state*/) {
    const auto jobs = simulated(kPlain, {job(0, 0, 16, 100, Tier::kBasic)}, "singularity");
    assert_int_equal(jobs[0].state, simulator::JobState::kFinished);
    expect_seconds(end_of(jobs[0]), 200);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(slurm_loses_work_since_the_hourly_checkpoint),
        cmocka_unit_test(slurm_backfills_only_what_does_not_delay_the_first),
        cmocka_unit_test(slurm_preempts_lower_tiers_only),
        cmocka_unit_test(tiresias_lets_the_one_with_less_service_go_first),
        cmocka_unit_test(tiresias_keeps_the_order_of_submission_within_a_queue),
        cmocka_unit_test(elastic_shrinks_to_let_another_in),
        cmocka_unit_test(singularity_shrinks_basic_for_premium_and_grows_it_back),
        cmocka_unit_test(alone_a_job_takes_its_own_time),
        cmocka_unit_test(too_large_a_job_is_reported),
        cmocka_unit_test(a_resizable_job_runs_on_less_than_it_asked_for),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
