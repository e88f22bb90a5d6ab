// SPDX-License-Identifier: GPL-2.0-or-later
#include "command_environment.hpp"

#include "agent/protocol/device_variables.hpp"
#include "allocation.hpp"
#include "environment.hpp"

#include <array>
#include <optional>
#include <string_view>

namespace singularity::task {

namespace {

// What sbatch(1) and srun(1) say of these: they tell of the allocation, or of the run.
constexpr std::array<std::string_view, 32> kOfRun{"SLURM_CPUS_ON_NODE",
                                                  "SLURM_GPUS_ON_NODE",
                                                  "SLURM_JOB_CPUS_PER_NODE",
                                                  "SLURM_JOB_END_TIME",
                                                  "SLURM_JOB_GPUS",
                                                  "SLURM_JOB_NODELIST",
                                                  "SLURM_JOB_NUM_NODES",
                                                  "SLURM_JOB_PARTITION",
                                                  "SLURM_JOB_QOS",
                                                  "SLURM_JOB_RESERVATION",
                                                  "SLURM_JOB_START_TIME",
                                                  "SLURM_NNODES",
                                                  "SLURM_NODELIST",
                                                  "SLURM_NODE_ALIASES",
                                                  "SLURM_RESTART_COUNT",
                                                  "SLURM_TASKS_PER_NODE",
                                                  "SLURM_TASK_PID",
                                                  "SLURM_TOPOLOGY_ADDR",
                                                  "SLURMD_NODENAME",
                                                  "CUDA_VISIBLE_DEVICES",
                                                  "SLURM_TOPOLOGY_ADDR_PATTERN",
                                                  "GPU_DEVICE_ORDINAL",
                                                  "SLURM_STEP_ID",
                                                  "SLURM_STEPID",
                                                  "SLURM_STEP_NODELIST",
                                                  "SLURM_STEP_NUM_NODES",
                                                  "SLURM_STEP_TASKS_PER_NODE",
                                                  "SLURM_NODEID",
                                                  "SLURM_SRUN_COMM_HOST",
                                                  "SLURM_SRUN_COMM_PORT",
                                                  "SLURM_STEP_LAUNCHER_PORT",
                                                  "SLURM_LAUNCH_NODE_IPADDR"};

constexpr std::string_view kRestarts = "SLURM_RESTART_COUNT";

} // namespace

void adapt_environment(std::vector<std::string> &environment, const std::vector<std::string> &own, bool moved,
                       std::uint32_t gpus) {
    for (const auto *const name : agent::kDeviceVariables)
        set_value(environment, name, std::nullopt);
    if (!moved)
        return;
    // What the script has taken away stays away.
    for (const auto name : kOfRun)
        if (value_of(environment, name))
            set_value(environment, name, value_of(own, name));
    set_value(environment, kRestarts, value_of(own, kRestarts)); // which the first run has not
    if (asks_for_gpus(environment) && gpus == 0)
        return;
    for (const auto &change : fit_to_allocation(environment, gpus))
        set_value(environment, change.name, change.value);
}

} // namespace singularity::task
