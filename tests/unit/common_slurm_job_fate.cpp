// SPDX-License-Identifier: GPL-2.0-or-later
// What becomes of a job, by its state and flags: all states of slurm.h, and those that no release has.
#include "cmocka.hpp"
#include "common/slurm/gres.hpp"
#include "common/slurm/job_fate.hpp"

#include <csignal>
#include <cstdint>
#include <ctime>

#include <slurm/slurm.h>

namespace {

using singularity::slurm::Fate;
using singularity::slurm::fate_of;
using singularity::slurm::to_string;
using singularity::test::expect_equal;

constexpr std::time_t kPreempted = 1700000000;

struct Case {
    std::uint32_t state;
    std::time_t preempt_time;
    Fate fate;
    std::uint32_t exit_code = 0;
};

template <std::size_t kCount>
void expect_fates(const Case (&cases)[kCount]) {
    for (const Case &test : cases)
        expect_equal(std::to_string(test.state) + " " +
                         std::string(to_string(fate_of(test.state, test.preempt_time, test.exit_code))),
                     std::to_string(test.state) + " " + std::string(to_string(test.fate)));
}

void base_states(void **) {
    static_assert(JOB_END == 12, "slurm.h has a new state: which fate is it?");
    const Case cases[] = {
        {JOB_PENDING, 0, Fate::kRequeued}, {JOB_RUNNING, 0, Fate::kStays},
        {JOB_SUSPENDED, 0, Fate::kStays},  {JOB_COMPLETE, 0, Fate::kEnded},
        {JOB_CANCELLED, 0, Fate::kEnded},  {JOB_FAILED, 0, Fate::kEnded},
        {JOB_TIMEOUT, 0, Fate::kTimeout},  {JOB_NODE_FAIL, 0, Fate::kEnded},
        {JOB_PREEMPTED, 0, Fate::kEnded},  {JOB_BOOT_FAIL, 0, Fate::kEnded},
        {JOB_DEADLINE, 0, Fate::kTimeout}, {JOB_OOM, 0, Fate::kEnded},
        {JOB_END, 0, Fate::kEnded},        {JOB_STATE_BASE, 0, Fate::kEnded},
    };
    expect_fates(cases);
}

void preemption_counts_while_it_runs(void **) {
    const Case cases[] = {
        {JOB_RUNNING, kPreempted, Fate::kPreempted},
        {JOB_SUSPENDED, kPreempted, Fate::kPreempted},
        {JOB_RUNNING | JOB_SIGNALING, kPreempted, Fate::kPreempted},
        {JOB_PENDING | JOB_COMPLETING, kPreempted, Fate::kRequeued},
        {JOB_PREEMPTED | JOB_COMPLETING, kPreempted, Fate::kEnded},
        {JOB_CANCELLED | JOB_COMPLETING, kPreempted, Fate::kEnded},
        {JOB_TIMEOUT | JOB_COMPLETING, kPreempted, Fate::kTimeout},
    };
    expect_fates(cases);
}

void flags(void **) {
    const Case cases[] = {
        {JOB_RUNNING | JOB_CONFIGURING, 0, Fate::kStays},
        {JOB_RUNNING | JOB_RESIZING, 0, Fate::kStays},
        {JOB_RUNNING | JOB_SIGNALING, 0, Fate::kStays},
        {JOB_RUNNING | JOB_SPECIAL_EXIT, 0, Fate::kStays},
        {JOB_RUNNING | JOB_COMPLETING, 0, Fate::kEnded},
        {JOB_PENDING | JOB_COMPLETING, 0, Fate::kRequeued},
        {JOB_PENDING | JOB_SPECIAL_EXIT, 0, Fate::kRequeued},
        {JOB_CANCELLED | JOB_COMPLETING, 0, Fate::kEnded},
        {JOB_TIMEOUT | JOB_COMPLETING, 0, Fate::kTimeout},
        {JOB_COMPLETE | JOB_COMPLETING, 0, Fate::kEnded},
        {JOB_FAILED | JOB_LAUNCH_FAILED, 0, Fate::kEnded},
        // Slurm makes them wait again once their nodes are free.
        {JOB_FAILED | JOB_COMPLETING | JOB_REQUEUE, 0, Fate::kRequeued},
        {JOB_FAILED | JOB_COMPLETING | JOB_SPECIAL_EXIT, 0, Fate::kRequeued},
        {JOB_NODE_FAIL | JOB_COMPLETING | JOB_REQUEUE_HOLD, 0, Fate::kRequeued},
        {JOB_COMPLETE | JOB_COMPLETING | JOB_REQUEUE_FED, 0, Fate::kRequeued},
        {JOB_RUNNING | JOB_COMPLETING | JOB_REQUEUE, 0, Fate::kRequeued},
        // Flags of a later release.
        {JOB_RUNNING | 0x80000000U, 0, Fate::kStays},
        {JOB_STATE_FLAGS | JOB_STATE_BASE, kPreempted, Fate::kRequeued},
    };
    expect_fates(cases);
}

void ends_by_signals(void **) {
    constexpr std::uint32_t kStatus = 256;
    const Case cases[] = {
        {JOB_FAILED, 0, Fate::kTerminated, SIGTERM},
        {JOB_FAILED | JOB_COMPLETING, 0, Fate::kTerminated, SIGTERM},
        {JOB_FAILED, 0, Fate::kEnded, SIGKILL},
        {JOB_FAILED, 0, Fate::kEnded, SIGTERM * kStatus},
        // Somebody has ended it.
        {JOB_CANCELLED, 0, Fate::kEnded, SIGTERM},
        {JOB_NODE_FAIL, 0, Fate::kEnded, SIGTERM},
        {JOB_TIMEOUT, 0, Fate::kTimeout, SIGTERM},
        {JOB_PENDING, 0, Fate::kRequeued, SIGTERM},
        {JOB_FAILED | JOB_COMPLETING | JOB_REQUEUE, 0, Fate::kRequeued, SIGTERM},
    };
    expect_fates(cases);
}

void words(void **) {
    expect_equal(to_string(Fate::kStays), "stays");
    expect_equal(to_string(Fate::kRequeued), "requeued");
    expect_equal(to_string(Fate::kPreempted), "preempted");
    expect_equal(to_string(Fate::kTimeout), "timeout");
    expect_equal(to_string(Fate::kTerminated), "terminated");
    expect_equal(to_string(Fate::kEnded), "ended");
}

void gpus(void **) {
    using singularity::slurm::gpus_of;
    assert_int_equal(*gpus_of(""), 0);
    assert_int_equal(*gpus_of("gpu:8"), 8);
    assert_int_equal(*gpus_of("gpu(CNT:8)"), 8); // nobody knows which
    assert_int_equal(*gpus_of("gpu:a100(CNT:4),shard(CNT:2),gpu:v100:1(IDX:3)"), 5);
    assert_false(gpus_of("gpu(CNT:)").has_value());
    assert_int_equal(*gpus_of("gpu:a100:2,gpu:1,nic:4,gpus:3"), 3);
    assert_int_equal(*gpus_of("nic:4"), 0);
    using singularity::slurm::gpu_types_of;
    using Names = std::vector<std::string>;
    assert_true(gpu_types_of("gpu:a100:2(S:0),gpu:1,nic:mlx5:4,gpu:h100(CNT:4),gpu:a100:1") ==
                (Names{"a100", "h100"}));
    assert_true(gpu_types_of("gpu:8,gpu(CNT:8)").empty());
    using singularity::slurm::gpu_types_wished;
    const auto wished = [](const std::string &per_job, const std::string &per_node = {}) {
        return gpu_types_wished(
            {.per_job = per_job, .per_node = per_node, .per_socket = {}, .per_task = {}, .nodes = 1});
    };
    assert_true(wished("gres/gpu:8").empty());
    assert_true(wished("gres/gpu").empty());
    assert_true(wished("gres/gpu:a100") == Names{"a100"});
    assert_true(wished("gres:gpu:a100:8", "gres/gpu:1g.5gb=2,gres/nic:x:1") == (Names{"a100", "1g.5gb"}));
    for (const auto *const wrong : {"gpu", "gpu:", "gpu:x", "gpu:99999999999", "gpu:8,,"})
        assert_false(gpus_of(wrong).has_value());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(base_states), cmocka_unit_test(preemption_counts_while_it_runs),
        cmocka_unit_test(flags),       cmocka_unit_test(ends_by_signals),
        cmocka_unit_test(words),       cmocka_unit_test(gpus),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
