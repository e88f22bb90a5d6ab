// SPDX-License-Identifier: GPL-2.0-or-later
// A batch script's environment when its job has other GPUs than it was submitted with. The variables are
// those of Slurm 24.11 for the named options of sbatch.
#include "cmocka.hpp"
#include "task/allocation.hpp"

#include <string>
#include <vector>

namespace {

using singularity::task::asks_for_gpus;
using singularity::task::fit_to_allocation;
using singularity::task::gpus_in;
using singularity::task::requested_gpus;
using singularity::test::expect_equal;

using Environment = std::vector<std::string>;

std::string changes(const Environment &environment, std::uint32_t gpus) {
    std::string out;
    for (const auto &[name, value] : fit_to_allocation(environment, gpus))
        out += (out.empty() ? "" : " ") + name + (value ? "=" + *value : " gone");
    return out;
}

Environment on(const std::string &nodes, const std::string &cpus, Environment more) {
    more.push_back("SLURM_JOB_NUM_NODES=" + nodes);
    more.push_back("SLURM_JOB_CPUS_PER_NODE=" + cpus);
    return more;
}

void gpus_of_the_job(void **) {
    const Environment asked{"SLURM_GPUS=8", "SLURM_NTASKS=8", "HOME=/"};
    expect_equal(changes(on("2", "4(x2)", asked), 8), "");
    expect_equal(changes(on("1", "8", asked), 4), "SLURM_GPUS=4");
    expect_equal(changes(on("4", "4(x4)", asked), 16), "SLURM_GPUS=16");
    expect_equal(changes(on("1", "8", {"SLURM_GPUS=a100:8"}), 4), "SLURM_GPUS=a100:4");
    expect_equal(changes(on("2", "8(x2)", {"SLURM_GPUS=a100:6,v100:2"}), 8), "");
    expect_equal(changes(on("1", "8", {"SLURM_GPUS=a100:6,v100:2"}), 4), "SLURM_GPUS gone");
}

void gpus_of_nodes(void **) {
    const Environment asked{"SLURM_GPUS_PER_NODE=4", "SLURM_NTASKS=8", "SLURM_NTASKS_PER_NODE=4"};
    expect_equal(changes(on("2", "4(x2)", asked), 8), "");
    expect_equal(changes(on("1", "8", asked), 4), "SLURM_NTASKS_PER_NODE gone");
    expect_equal(changes(on("1", "8", asked), 2), "SLURM_GPUS_PER_NODE=2 SLURM_NTASKS_PER_NODE gone");
    expect_equal(changes(on("2", "4(x2)", asked), 5), "SLURM_GPUS_PER_NODE gone");
    expect_equal(changes(on("1", "8", {"SLURM_GPUS_PER_SOCKET=4"}), 2), "SLURM_GPUS_PER_SOCKET gone");
}

void gpus_of_tasks(void **) {
    const Environment before{"SLURM_GPUS_PER_TASK=1", "SLURM_NTASKS=8", "SLURM_GPU_BIND=per_task:1"};
    expect_equal(changes(on("2", "4(x2)", before), 8), "");
    expect_equal(changes(on("1", "8", before), 4), "SLURM_GPUS_PER_TASK gone SLURM_GPU_BIND gone");
    const Environment now{"SLURM_TRES_PER_TASK=cpu=2,gres/gpu=1", "SLURM_TRES_BIND=gres/gpu:per_task:1",
                          "SLURM_CPUS_PER_TASK=2", "SLURM_NTASKS=8"};
    expect_equal(changes(on("2", "8(x2)", now), 8), "");
    expect_equal(changes(on("1", "16", now), 4), "SLURM_TRES_PER_TASK=cpu=2 SLURM_TRES_BIND gone");
    expect_equal(changes(on("1", "8", now), 4),
                 "SLURM_TRES_PER_TASK=cpu=1 SLURM_TRES_BIND gone SLURM_CPUS_PER_TASK=1");
    expect_equal(changes(on("1", "8", {"SLURM_TRES_PER_TASK=gres/gpu=1", "SLURM_NTASKS=8"}), 4),
                 "SLURM_TRES_PER_TASK gone");
    expect_equal(changes(on("1", "8", {"SLURM_TRES_BIND=gres/gpu:closest", "SLURM_NTASKS=8"}), 4), "");
    expect_equal(changes(on("2", "4(x2)", {"SLURM_NTASKS_PER_GPU=1", "SLURM_NTASKS=8"}), 8), "");
    expect_equal(changes(on("1", "8", {"SLURM_NTASKS_PER_GPU=1", "SLURM_NTASKS=8"}), 4),
                 "SLURM_NTASKS_PER_GPU gone");
}

void fewer_cpus_than_tasks(void **) {
    expect_equal(changes(on("2", "3,5", {"SLURM_NTASKS=8"}), 0), "");
    expect_equal(changes(on("1", "4", {"SLURM_NTASKS=8"}), 0), "SLURM_OVERCOMMIT=1");
    expect_equal(changes(on("1", "4", {"SLURM_NTASKS=8", "SLURM_OVERCOMMIT=1"}), 0), "");
    expect_equal(
        changes(
            on("1", "1", {"SLURM_GPUS=8", "SLURM_NTASKS=8", "SLURM_CPUS_PER_TASK=2", "SLURM_OVERCOMMIT=1"}),
            4),
        "SLURM_GPUS=4");
}

std::string requested(const Environment &environment) {
    const auto found = requested_gpus(environment);
    return found.name + (found.value ? "=" + *found.value : " gone");
}

// Nodes and tasks of a job that was made smaller before it began are those that it has now.
void what_was_requested(void **) {
    expect_equal(requested({"SLURM_GPUS=8", "SLURM_NTASKS=4"}), "SLURM_SINGULARITY_GPUS=8:8:0");
    expect_equal(requested({"SLURM_GPUS=a100:6,v100:2"}), "SLURM_SINGULARITY_GPUS=8:8:0");
    expect_equal(requested({"SLURM_GPUS_PER_NODE=4", "SLURM_JOB_NUM_NODES=2"}),
                 "SLURM_SINGULARITY_GPUS=8:8:0");
    expect_equal(requested({"SLURM_GPUS_PER_NODE=4", "SLURM_JOB_NUM_NODES=1", "SLURM_NTASKS=8",
                            "SLURM_NTASKS_PER_NODE=4"}),
                 "SLURM_SINGULARITY_GPUS=8:8:0");
    expect_equal(requested({"SLURM_GPUS_PER_TASK=2", "SLURM_NTASKS=4"}), "SLURM_SINGULARITY_GPUS=8:8:2");
    expect_equal(requested({"SLURM_TRES_PER_TASK=cpu=2,gres/gpu=1", "SLURM_NTASKS=4"}),
                 "SLURM_SINGULARITY_GPUS=4:4:1");
    expect_equal(requested({"SLURM_GPUS=8", "SINGULARITY_ELASTIC=1-4"}), "SLURM_SINGULARITY_GPUS=4:4:0");
    expect_equal(requested({"SLURM_GPUS=8", "SINGULARITY_ELASTIC=1-requested"}),
                 "SLURM_SINGULARITY_GPUS=8:8:0");
    for (const Environment &nothing : {Environment{"SLURM_NTASKS=4"},
                                       {"SLURM_GPUS=many"},
                                       {"SLURM_GPUS=0"},
                                       {"SLURM_GPUS_PER_TASK=1"},
                                       {"SLURM_GPUS_PER_NODE=4294967295", "SLURM_JOB_NUM_NODES=4294967295"},
                                       {"SLURM_SINGULARITY_GPUS=8:2:0"}}) // of another job
        expect_equal(requested(nothing), "SLURM_SINGULARITY_GPUS gone");
    expect_equal(requested({"SLURM_GPUS=2", "SLURM_SINGULARITY_GPUS=8:2:0"}), "SLURM_SINGULARITY_GPUS=2:2:0");
    expect_equal(changes(on("1", "8", {"SLURM_SINGULARITY_GPUS=8:8:1", "SLURM_NTASKS=8"}), 2),
                 "SLURM_SINGULARITY_GPUS=8:2:1");
    expect_equal(changes(on("1", "8", {"SLURM_SINGULARITY_GPUS=8:2:1", "SLURM_NTASKS=8"}), 2), "");
    expect_equal(changes(on("1", "8", {"SLURM_SINGULARITY_GPUS=8:2:1", "SLURM_NTASKS=8"}), 0), "");
    expect_equal(changes(on("1", "8", {"SLURM_SINGULARITY_GPUS=8", "SLURM_NTASKS=8"}), 2),
                 "SLURM_SINGULARITY_GPUS gone");
}

void what_is_not_understood_stays(void **) {
    expect_equal(changes({"SLURM_GPUS=8"}, 4), "");
    expect_equal(changes(on("1", "four", {"SLURM_GPUS=8"}), 4), "");
    expect_equal(changes(on("1", "4(x", {"SLURM_GPUS=8"}), 4), "");
    expect_equal(changes(on("1", "4", {"SLURM_GPUS=many"}), 4), "");
    expect_equal(changes(on("1", "4", {"SLURM_GPUS="}), 4), "");
    expect_equal(changes(on("1", "4", {"SLURM_GPUS_PER_NODE=99999999999"}), 4), "");
}

void slurmctld_is_asked_where_it_matters(void **) {
    assert_true(asks_for_gpus({"HOME=/", "SLURM_GPUS=8"}));
    assert_true(asks_for_gpus({"SLURM_TRES_PER_TASK=cpu=2"}));
    assert_false(asks_for_gpus({"SLURM_GPUS_ON_NODE=4", "SLURM_NTASKS_PER_NODE=4", "XSLURM_GPUS=8"}));
    assert_int_equal(*gpus_in("job=3\ngpus=12\nfate=stays\n"), 12);
    assert_false(gpus_in("job=3\nfate=stays\n").has_value());
    assert_false(gpus_in("gpus=x\n").has_value());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(gpus_of_the_job),
        cmocka_unit_test(gpus_of_nodes),
        cmocka_unit_test(gpus_of_tasks),
        cmocka_unit_test(fewer_cpus_than_tasks),
        cmocka_unit_test(what_was_requested),
        cmocka_unit_test(what_is_not_understood_stays),
        cmocka_unit_test(slurmctld_is_asked_where_it_matters),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
