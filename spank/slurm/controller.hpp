// SPDX-License-Identifier: GPL-2.0-or-later
// Questions to slurmctld by Slurm's public API. It blocks, prints what it pleases on standard error, and ends
// the process where slurm.conf cannot be read: for programs of their own.
#pragma once

#include "common/error.hpp"
#include "job_fate.hpp"
#include "placement.hpp"

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace singularity::slurm {

struct Job {
    bool known = false; // false: slurmctld has no such job, or no longer; only fate says something then
    std::uint32_t id = 0;
    Fate fate = Fate::kEnded;
    bool completing = false; // some of its processes may still be there
    bool pending = false;
    bool running = false;
    std::string state; // "RUNNING", as Slurm prints it
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    bool batch = false;
    bool may_requeue = false; // --requeue, or JobRequeue of slurm.conf
    std::uint32_t restarts = 0;
    std::optional<std::uint32_t> gpus; // of its allocation, on all nodes; nothing: it does not run
    std::string batch_host;            // where the script runs, or would; empty before the job has nodes
    std::string nodes;                 // Slurm's list of names; empty: it has none
    std::string name;
    std::string partition;
    std::string qos;
    std::time_t started = 0;
    std::string comment;
    std::string admin_comment;
    Wishes wishes;
};

struct Node {
    bool known = false;
    bool down = false;
    bool leaves = false; // it is drained, or about to fail: what runs there is to go
    std::string reason;  // as whoever did it has given it
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
// All that the caller may see.
[[nodiscard]] Expected<std::vector<Job>> load_jobs();
[[nodiscard]] Expected<Node> load_node(const std::string &name);

// One that runs or is suspended, has come to its time limit, was ended by SIGTERM, or already is requeued:
// one that has been cancelled must not come back.
// hold: it then waits until somebody releases it.
[[nodiscard]] Expected<void> requeue_job(std::uint32_t id, bool hold = false);

// On whose behalf root changes something: slurmctld decides what that user may.
struct User {
    uid_t uid = 0;
    gid_t gid = 0;
};
[[nodiscard]] Expected<void> update_job(std::uint32_t id, const Change &change,
                                        std::optional<User> user = {});

} // namespace singularity::slurm
