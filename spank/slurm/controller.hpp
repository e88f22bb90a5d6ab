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
    bool known = false; // false: slurmctld has no such job, or no longer; only fate says something then
    Fate fate = Fate::kEnded;
    bool completing = false; // some of its processes may still be there
    std::uint32_t uid = 0;
    bool batch = false;
    bool may_requeue = false; // --requeue, or JobRequeue of slurm.conf
    std::uint32_t restarts = 0;
    std::optional<std::uint32_t> gpus; // of its allocation, on all nodes; nothing: it does not run
    std::string batch_host;            // where the script runs, or would; empty before the job has nodes
};

// libslurm between its initialisation, which reads slurm.conf, and its end: one per process, around all that
// follows.
class Library {
  public:
    Library();
    ~Library();
    Library(const Library &) = delete;
    Library &operator=(const Library &) = delete;
};

// ClusterName of slurm.conf, as slurmctld has it.
[[nodiscard]] Expected<std::string> cluster_name();

[[nodiscard]] Expected<Job> load_job(std::uint32_t id);

// One that runs or is suspended, has come to its time limit, or already is requeued: one that has been
// cancelled must not come back.
[[nodiscard]] Expected<void> requeue_job(std::uint32_t id);

// One that waits may run in a few seconds: what is requeued must otherwise wait for AuthInfo's cred_expire to
// pass.
[[nodiscard]] Expected<void> begin_job_now(std::uint32_t id);

} // namespace singularity::slurm
