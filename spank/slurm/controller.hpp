// SPDX-License-Identifier: GPL-2.0-or-later
// Questions to slurmctld by Slurm's public API. It blocks, prints what it pleases on standard error, and ends
// the process where slurm.conf cannot be read: for programs of their own.
#pragma once

#include "common/error.hpp"
#include "job_fate.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace singularity::slurm {

struct Job {
    Fate fate = Fate::kEnded;
    std::uint32_t uid = 0;
    bool batch = false;
    bool may_requeue = false; // --requeue, or JobRequeue of slurm.conf
    std::uint32_t restarts = 0;
    std::string batch_host; // empty before it has one, and for jobs without a script
};

// One per process; the first reads slurm.conf.
class Controller {
  public:
    Controller();
    ~Controller();
    Controller(const Controller &) = delete;
    Controller &operator=(const Controller &) = delete;

    // ClusterName of slurm.conf, as slurmctld has it.
    [[nodiscard]] Expected<std::string> cluster_name() const;

    // Nothing: slurmctld has no such job, or no longer.
    [[nodiscard]] Expected<std::optional<Job>> job(std::uint32_t id) const;

    // Only one that runs or is suspended: one that has been cancelled must not come back.
    [[nodiscard]] Expected<void> requeue(std::uint32_t id) const;
};

} // namespace singularity::slurm
