// SPDX-License-Identifier: GPL-2.0-or-later
// Which job and step of Slurm's a process is in, as its cgroups say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace singularity::agent {

// Where Slurm has put a user's process: job 4711, step "0" or "batch", say; job 0: nowhere.
struct SlurmCgroup {
    std::uint32_t job = 0;
    std::string step;
};
// text: what root has decided of its /proc/PID/cgroup (node::made_by_root). Slurm's paths are
// .../uid_UID/job_N/step_S in the older hierarchies and .../[NODE_]slurmstepd.scope/job_N/step_S in the
// unified one.
[[nodiscard]] SlurmCgroup slurm_cgroup(std::string_view text, std::uint32_t uid);
// "4711.0"; empty: it is in no step of srun's. Batch scripts are in none.
[[nodiscard]] std::string step_of(const SlurmCgroup &place);
// 4711, if it is of a batch script; 0: of none.
[[nodiscard]] std::uint32_t script_of(const SlurmCgroup &place);
inline constexpr std::string_view kBatchStep = "batch";
// "4711.batch", for job 4711: what a batch script is called that is a step like others, in a node of its own.
[[nodiscard]] std::string step_of_script(std::uint32_t job);
[[nodiscard]] bool is_script(std::string_view step);
// The same text with the cgroups of the step where it has those of one of its tasks. In the unified hierarchy
// processes cannot be there: that of the task stays.
[[nodiscard]] std::string cgroups_of_step(std::string_view text);
// The same text as it is, but for the older hierarchy of devices, where it is the step's: device proxies
// count the step's devices, and in that of a task they may see fewer.
[[nodiscard]] std::string cgroups_of_task(std::string_view text);

} // namespace singularity::agent
