// SPDX-License-Identifier: GPL-2.0-or-later
// What the verifier makes of records and answers, and what follows from it for trust and log.
#include "cmocka.hpp"
#include "common/log.hpp"
#include "select-plugin/synthetic.hpp"
#include "verification.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace {

using namespace singularity;
using namespace singularity::records;
using namespace std::chrono_literals;
using test::expect_contains;
using test::FakeController;
using test::SyntheticJob;

constexpr std::size_t kEnough = 16;

template <class Expected>
const Expected &expect(const Finding &finding) {
    const auto *const found = std::get_if<Expected>(&finding);
    if (found == nullptr) {
        std::string what;
        if (const auto *wrong = std::get_if<found::Wrong>(&finding))
            what = wrong->what;
        if (const auto *suspicion = std::get_if<found::Suspicion>(&finding))
            what = suspicion->what;
        test::fail("another finding: " + std::to_string(finding.index()) + " " + what);
    }
    return *found;
}

// Wrong only after it has been seen often enough.
std::string expect_wrong(Controller &controller) {
    Verifier verifier(controller, kEnough);
    for (int i = 1; i < Verifier::kTimesToBeSure; ++i)
        (void)expect<found::Suspicion>(verifier.compare());
    return expect<found::Wrong>(verifier.compare()).what;
}

void agreement_is_counted(void ** /*state*/) {
    FakeController controller;
    Verifier verifier(controller, kEnough);
    const auto agreement = expect<found::Agreement>(verifier.compare());
    assert_int_equal(agreement.jobs, 2);
    assert_int_equal(agreement.nodes, 1);
    assert_true(agreement.fields > 60);
}

void pending_job_is_shown_otherwise_and_agrees(void ** /*state*/) {
    FakeController controller;
    controller.first.make_pending();
    Verifier verifier(controller, kEnough);
    (void)expect<found::Agreement>(verifier.compare());
}

void job_without_a_limit_is_shown_with_its_partitions(void ** /*state*/) {
    FakeController controller;
    controller.first.job.set(kJob_time_limit, NO_VAL);
    controller.first.shown.time_limit = 600;
    Verifier verifier(controller, kEnough);
    (void)expect<found::Agreement>(verifier.compare());
}

void job_whose_details_are_gone_agrees(void ** /*state*/) {
    FakeController controller;
    const void *const nowhere = nullptr;
    controller.first.job.set(kJob_details, nowhere).set(kJob_job_state, std::uint32_t{JOB_COMPLETE});
    controller.first.shown.job_state = JOB_COMPLETE;
    controller.first.shown.submit_time = 0;
    Verifier verifier(controller, kEnough);
    (void)expect<found::Agreement>(verifier.compare());
}

void every_listed_value_is_compared(void ** /*state*/) {
    // One wrong answer at a time; the table's field must be named.
    struct Case {
        const char *field;
        void (*spoil)(FakeController &);
        bool pending = false;
    };
    const std::vector<Case> cases{
        {"job_record.user_id", [](FakeController &c) { c.first.shown.user_id = 0; }},
        {"job_record.job_state", [](FakeController &c) { c.first.shown.job_state = JOB_FAILED; }},
        {"job_record.priority", [](FakeController &c) { c.first.shown.priority = 1; }},
        {"job_record.name", [](FakeController &c) { c.first.shown.name = nullptr; }},
        {"job_record.account", [](FakeController &c) { c.first.shown.account = SyntheticJob::text("x"); }},
        {"job_record.partition", [](FakeController &c) { c.first.shown.partition = SyntheticJob::text("x"); },
         true},
        {"part_record.name", [](FakeController &c) { c.first.shown.partition = SyntheticJob::text("x"); }},
        {"job_record.state_reason", [](FakeController &c) { c.first.shown.state_reason = 9; }},
        {"job_record.restart_cnt", [](FakeController &c) { c.first.shown.restart_cnt = 0; }},
        {"job_record.batch_flag", [](FakeController &c) { c.first.shown.batch_flag = 0; }},
        {"job_record.array_job_id", [](FakeController &c) { c.first.shown.array_job_id = 4; }},
        {"job_record.array_task_id", [](FakeController &c) { c.first.shown.array_task_id = 0; }},
        {"job_record.het_job_id", [](FakeController &c) { c.first.shown.het_job_id = 4; }},
        {"job_record.time_limit", [](FakeController &c) { c.first.shown.time_limit = 61; }},
        {"job_record.start_time", [](FakeController &c) { ++c.first.shown.start_time; }},
        {"job_record.end_time", [](FakeController &c) { ++c.first.shown.end_time; }},
        {"job_record.preempt_time", [](FakeController &c) { c.first.shown.preempt_time = 1; }},
        {"job_record.total_cpus", [](FakeController &c) { c.first.shown.num_cpus = 15; }},
        {"job_record.nodes", [](FakeController &c) { c.first.shown.nodes = SyntheticJob::text("n1"); }},
        {"job_record.tres_fmt_req_str", [](FakeController &c) { c.first.shown.tres_req_str = nullptr; }},
        {"job_record.tres_fmt_alloc_str", [](FakeController &c) { c.first.shown.tres_alloc_str = nullptr; }},
        {"job_record.qos_id", [](FakeController &c) { c.first.job.set(kJob_qos_id, 6U); }},
        {"slurmdb_qos_rec.name", [](FakeController &c) { c.first.shown.qos = nullptr; }},
        {"job_details.submit_time", [](FakeController &c) { ++c.first.shown.submit_time; }},
        {"job_details.begin_time", [](FakeController &c) { ++c.first.shown.eligible_time; }},
        {"job_details.requeue", [](FakeController &c) { c.first.shown.requeue = 0; }},
        {"job_details.min_cpus", [](FakeController &c) { c.first.shown.num_cpus = 9; }, true},
        {"part_record.priority_tier", [](FakeController &c) { c.partition.priority_tier = 1; }},
        {"part_record.priority_job_factor", [](FakeController &c) { c.partition.priority_job_factor = 1; }},
        {"part_record.max_time", [](FakeController &c) { c.partition.max_time = 1; }},
        {"part_record.name", [](FakeController &c) { c.partition.name = SyntheticJob::text("other"); }},
        {"node_record.node_hostname", [](FakeController &c) { c.node.shown.node_hostname = nullptr; }},
        {"node_record.node_state", [](FakeController &c) { c.node.shown.node_state = 1; }},
        {"node_record.cpus_efctv", [](FakeController &c) { c.node.shown.cpus_efctv = 1; }},
        {"node_record.owner", [](FakeController &c) { c.node.shown.owner = 1; }},
        {"node_record.boot_time", [](FakeController &c) { c.node.shown.boot_time = 1; }},
        {"node_record.slurmd_start_time", [](FakeController &c) { c.node.shown.slurmd_start_time = 1; }},
        {"node_record.reason", [](FakeController &c) { c.node.shown.reason = SyntheticJob::text("x"); }},
        {"node_record.tres_fmt_str", [](FakeController &c) { c.node.shown.tres_fmt_str = nullptr; }},
    };
    for (const auto &[field, spoil, pending] : cases) {
        FakeController controller;
        if (pending)
            controller.first.make_pending();
        spoil(controller);
        expect_contains(expect_wrong(controller), std::string(field) + " is read as ");
    }
}

void wrong_number_is_a_job_that_nobody_knows(void ** /*state*/) {
    FakeController controller;
    controller.shown_jobs.erase(71);
    expect_contains(expect_wrong(controller),
                    "job_record.job_id is read as 71, but the public API says no such job");
}

void wrong_name_is_a_node_that_nobody_knows(void ** /*state*/) {
    FakeController controller;
    controller.node.node.set(kNode_name, "elsewhere");
    expect_contains(expect_wrong(controller), "node_record.name is read as 'elsewhere'");
}

void values_that_change_in_between_do_not_count(void ** /*state*/) {
    FakeController controller;
    // As if slurmctld had answered after the change: every answer differs from the first read.
    controller.meanwhile = [&controller] {
        controller.first.job.set(kJob_priority, 1U)
            .set(kJob_name, "renamed")
            .set(kJob_restart_cnt, std::uint16_t{3});
        controller.first.job.set(kJob_job_state, std::uint32_t{JOB_COMPLETE})
            .set(kJob_end_time, std::int64_t{9});
        controller.node.node.set(kNode_node_state, 3U);
    };
    controller.first.shown.priority = 1;
    controller.first.shown.name = SyntheticJob::text("renamed");
    controller.first.shown.restart_cnt = 3;
    controller.first.shown.job_state = JOB_COMPLETE;
    controller.first.shown.end_time = 9;
    controller.first.shown.start_time = 1; // not compared: the state that decides about it changed
    controller.node.shown.node_state = 3;
    Verifier verifier(controller, kEnough);
    (void)expect<found::Agreement>(verifier.compare());
}

void job_that_ends_in_between_does_not_count(void ** /*state*/) {
    FakeController controller;
    controller.shown_jobs.erase(71);
    controller.meanwhile = [&controller] { controller.jobs.erase(controller.jobs.begin()); };
    Verifier verifier(controller, kEnough);
    const auto agreement = expect<found::Agreement>(verifier.compare());
    assert_int_equal(agreement.jobs, 1);
}

void record_that_becomes_another_job_does_not_count(void ** /*state*/) {
    FakeController controller;
    controller.shown_jobs.erase(71);
    controller.meanwhile = [&controller] { controller.first.job.set(kJob_job_id, 80U); };
    Verifier verifier(controller, kEnough);
    (void)expect<found::Agreement>(verifier.compare());
}

void disagreement_that_passes_is_forgotten(void ** /*state*/) {
    FakeController controller;
    Verifier verifier(controller, kEnough);
    for (int round = 0; round < 3; ++round) {
        controller.first.shown.priority = 1;
        for (int i = 1; i < Verifier::kTimesToBeSure; ++i)
            (void)expect<found::Suspicion>(verifier.compare());
        controller.first.shown.priority = 4294;
        (void)expect<found::Agreement>(verifier.compare());
    }
}

void disagreements_about_different_fields_do_not_add_up(void ** /*state*/) {
    FakeController controller;
    Verifier verifier(controller, kEnough);
    for (int i = 0; i < 3 * Verifier::kTimesToBeSure; ++i) {
        controller.first.shown.priority = i % 2 == 0 ? 1 : 4294;
        controller.first.shown.user_id = i % 2 == 0 ? 1001 : 1;
        (void)expect<found::Suspicion>(verifier.compare());
    }
}

void unreadable_record_is_wrong(void ** /*state*/) {
    FakeController controller;
    controller.first.job.set_block_size(kJobLayout.size + 16);
    expect_contains(expect_wrong(controller), "job_record: its block is ");
}

void nothing_to_compare_is_not_agreement(void ** /*state*/) {
    FakeController controller;
    controller.jobs.clear();
    Verifier verifier(controller, kEnough);
    (void)expect<found::Nothing>(verifier.compare());
    FakeController without_nodes;
    without_nodes.nodes.clear();
    Verifier second(without_nodes, kEnough);
    (void)expect<found::Nothing>(second.compare());
}

void samples_take_turns(void ** /*state*/) {
    FakeController controller;
    Verifier verifier(controller, 1);
    for (int i = 0; i < 4; ++i)
        (void)expect<found::Agreement>(verifier.compare());
    assert_true((controller.asked_for == std::vector<std::uint32_t>{71, 72, 71, 72}));
}

void unreachable_controller_is_neither(void ** /*state*/) {
    FakeController controller;
    controller.reachable = false;
    Verifier verifier(controller, kEnough);
    expect_contains(expect<found::Unreachable>(verifier.compare()).error.message(), "connection refused");
}

// What the log got since the last look.
std::vector<std::string> &lines() {
    static std::vector<std::string> all;
    return all;
}

int catch_log(void ** /*state*/) {
    log::set_sink([](log::Level, std::string_view line) { lines().emplace_back(line); });
    return 0;
}

int release_log(void ** /*state*/) {
    log::set_sink(nullptr);
    return 0;
}

void trust_is_granted_once_and_logged_once(void ** /*state*/) {
    FakeController controller;
    Shared shared;
    Verification verification(shared, controller, kEnough, 60s);
    lines().clear();
    assert_true(verification.step() == 60s);
    assert_true(shared.trust() == Trust::kTrusted);
    assert_true(verification.step() == 60s);
    assert_int_equal(lines().size(), 1);
    expect_contains(lines().front(), "2 jobs, 1 nodes");
}

void trust_ends_for_good_with_one_line(void ** /*state*/) {
    FakeController controller;
    Shared shared;
    Verification verification(shared, controller, kEnough, 60s);
    assert_true(verification.step() == 60s);
    lines().clear();
    controller.first.shown.priority = 12;
    for (int i = 1; i < Verifier::kTimesToBeSure; ++i) {
        assert_true(verification.step() == Verification::kSoon);
        assert_true(shared.trust() == Trust::kTrusted);
    }
    assert_false(verification.step().has_value());
    assert_true(shared.trust() == Trust::kForwarding);
    assert_int_equal(lines().size(), 1);
    for (const char *const part : {"only forwarding", "24.11.5", "job_record.priority", "4294", "12"})
        expect_contains(lines().front(), part);
    controller.first.shown.priority = 4294;
    assert_false(verification.step().has_value());
    assert_false(shared.grant());
    assert_true(shared.trust() == Trust::kForwarding);
    assert_int_equal(lines().size(), 1);
}

void without_jobs_it_stays_unverified_and_looks_again_soon(void ** /*state*/) {
    FakeController controller;
    controller.jobs.clear();
    Shared shared;
    Verification verification(shared, controller, kEnough, 60s);
    lines().clear();
    assert_true(verification.step() == Verification::kSoon);
    assert_true(shared.trust() == Trust::kUnverified);
    assert_true(lines().empty());
}

void unreachable_controller_is_asked_less_and_less_often(void ** /*state*/) {
    FakeController controller;
    controller.reachable = false;
    Shared shared;
    Verification verification(shared, controller, kEnough, 5s);
    for (const auto expected : {1s, 2s, 4s, 5s, 5s})
        assert_true(verification.step() == expected);
    assert_true(shared.trust() == Trust::kUnverified);
    controller.reachable = true;
    assert_true(verification.step() == 5s);
    controller.reachable = false;
    assert_true(verification.step() == 1s);
    assert_true(shared.trust() == Trust::kTrusted);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(agreement_is_counted),
        cmocka_unit_test(pending_job_is_shown_otherwise_and_agrees),
        cmocka_unit_test(job_without_a_limit_is_shown_with_its_partitions),
        cmocka_unit_test(job_whose_details_are_gone_agrees),
        cmocka_unit_test(every_listed_value_is_compared),
        cmocka_unit_test(wrong_number_is_a_job_that_nobody_knows),
        cmocka_unit_test(wrong_name_is_a_node_that_nobody_knows),
        cmocka_unit_test(values_that_change_in_between_do_not_count),
        cmocka_unit_test(job_that_ends_in_between_does_not_count),
        cmocka_unit_test(record_that_becomes_another_job_does_not_count),
        cmocka_unit_test(disagreement_that_passes_is_forgotten),
        cmocka_unit_test(disagreements_about_different_fields_do_not_add_up),
        cmocka_unit_test(unreadable_record_is_wrong),
        cmocka_unit_test(nothing_to_compare_is_not_agreement),
        cmocka_unit_test(samples_take_turns),
        cmocka_unit_test(unreachable_controller_is_neither),
        cmocka_unit_test(trust_is_granted_once_and_logged_once),
        cmocka_unit_test(trust_ends_for_good_with_one_line),
        cmocka_unit_test(without_jobs_it_stays_unverified_and_looks_again_soon),
        cmocka_unit_test(unreachable_controller_is_asked_less_and_less_often),
    };
    return cmocka_run_group_tests_name("select_plugin_verifier", tests, catch_log, release_log);
}
