// SPDX-License-Identifier: GPL-2.0-or-later
// A batch script's environment says what sbatch was asked for, and srun takes that for its own options. A job
// that has fewer or more GPUs than it was submitted with would ask for what it does not have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace singularity::task {

struct Change {
    std::string name;
    std::optional<std::string> value; // nothing: the variable goes
    friend bool operator==(const Change &, const Change &) = default;
};

// How many GPUs sbatch was asked for, of all nodes and for each task; gone where the environment does not
// tell, also one that came from the job in which sbatch was called. How many the job has is not known yet.
[[nodiscard]] Change requested_gpus(const std::vector<std::string> &environment);

// Whether anything in it is a question of how many GPUs the job has.
[[nodiscard]] bool asks_for_gpus(const std::vector<std::string> &environment);

// What has to change so that sruns without options of their own find room for all tasks. gpus: the job's, on
// all nodes; nodes, CPUs and tasks are in the environment. Nothing where the job has what it asked for, and
// where Slurm's variables are not understood.
[[nodiscard]] std::vector<Change> fit_to_allocation(const std::vector<std::string> &environment,
                                                    std::uint32_t gpus);

// The job's GPUs as `singularity-slurm job` tells them (gpus=N).
[[nodiscard]] std::optional<std::uint32_t> gpus_in(const std::string &told);

} // namespace singularity::task
