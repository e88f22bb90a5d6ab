// SPDX-License-Identifier: GPL-2.0-or-later
// Questions to slurmctld by Slurm's public API. It blocks, prints what it pleases on standard error, and ends
// the process where slurm.conf cannot be read: for programs of their own.
#pragma once

#include "common/error.hpp"
#include "common/slurm/job_fate.hpp"
#include "common/slurm/placement.hpp"

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace singularity::slurm {

// GPUs of one node that a job has.
struct GpuShare {
    std::string node;
    std::uint32_t gpus = 0;
};

// What a pending job waits for.
enum class Waiting : std::uint8_t {
    kForRoom,  // nodes, or its turn: it would start if there were room
    kForTime,  // its begin
    kForSize,  // it asks for more than a limit of its QOS or association leaves it: a smaller one might start
    kForOther, // other jobs, other limits, licences, people: room alone does not help it
};

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
    bool part = false;        // of a heterogeneous job
    bool may_requeue = false; // --requeue, or JobRequeue of slurm.conf
    std::uint32_t restarts = 0;
    std::optional<std::uint32_t> gpus; // of its allocation, on all nodes; nothing: it does not run
    std::string batch_host;            // where the script runs, or would; empty before the job has nodes
    std::string nodes;                 // Slurm's list of names; empty: it has none
    std::string name;
    std::string partition; // or several, commas between them
    std::string features;  // that its nodes must have: Slurm's --constraint
    std::string qos;
    std::time_t eligible = 0; // 0: it is not yet
    std::time_t begin = 0;    // of one that waits for that; 0: it does not
    std::time_t started = 0;
    Waiting waiting = Waiting::kForRoom; // of one that is pending
    std::int32_t site_factor = 0;        // in its priority
    std::uint32_t tasks = 0;
    std::uint32_t least_nodes = 0;
    std::uint32_t most_nodes = 0; // 0: no limit
    std::vector<GpuShare> shares; // of one that runs or is suspended, in the order of its nodes
    std::string comment;
    std::string admin_comment;
    Wishes wishes;
};

struct Node {
    bool known = false;
    bool down = false;
    bool leaves = false; // it is drained, or about to fail: what runs there is to go
    std::string reason;  // as whoever did it has given it
    std::string name;
    std::uint32_t gpus = 0;
    std::string leaf; // the switch or block that it hangs on, of load_nodes; empty: no topology is configured
    std::vector<std::string> partitions;
    std::vector<std::string> gpu_types;
    std::vector<std::string> features;
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

// Of slurm.conf, as slurmctld has it.
struct Settings {
    std::string cluster;                   // ClusterName
    std::filesystem::path state_directory; // StateSaveLocation
};
[[nodiscard]] Expected<Settings> settings();

[[nodiscard]] Expected<Job> load_job(std::uint32_t id);
// All that the caller may see.
[[nodiscard]] Expected<std::vector<Job>> load_jobs();
[[nodiscard]] Expected<Node> load_node(const std::string &name);
[[nodiscard]] Expected<std::vector<Node>> load_nodes();

// One that runs or is suspended, has come to its time limit, was ended by SIGTERM, or already is requeued:
// one that has been cancelled must not come back.
// hold: it then waits until somebody releases it.
[[nodiscard]] Expected<void> requeue_job(std::uint32_t id, bool hold = false);
// The same of one that was just seen running, in one request: one that has ended meanwhile is left as it is,
// and that is no error.
[[nodiscard]] Expected<void> requeue_running(std::uint32_t id);

// On whose behalf root changes something: slurmctld decides what that user may.
struct User {
    uid_t uid = 0;
    gid_t gid = 0;
};
[[nodiscard]] Expected<void> update_job(std::uint32_t id, const Change &change,
                                        std::optional<User> user = {});

} // namespace singularity::slurm
