// SPDX-License-Identifier: GPL-2.0-or-later
// What the policy sees: the cluster and its jobs at one moment, in flat vectors. Indices, not pointers: a
// snapshot can be copied, saved and compared, and its memory serves the next one.
//
// A snapshot shows how things will be when everything that was decided before has been carried out. A job
// whose last action is still under way is kMoving and has the shares that it will have (none, if it was told
// to yield), and the GPUs that it gives up are free. So no plan decides the same thing twice, and the shares
// of a node never exceed its GPUs.
#pragma once

#include "select-plugin/policy/ledger.hpp"
#include "select-plugin/policy/tier.hpp"
#include "select-plugin/policy/units.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace singularity::policy {

// Most GPUs that one node may have.
constexpr std::uint32_t kMostGpusOfNode = 64;

// Nodes are of one kind if the same jobs may use them (in Slurm: same partitions, types of GPUs and
// features). A set of kinds is a bit for each.
constexpr std::uint32_t kMostKinds = 64;
using Kinds = std::uint64_t;
constexpr Kinds kAllKinds = ~Kinds{0};
[[nodiscard]] constexpr bool is_among(std::uint32_t kind, Kinds kinds) { return ((kinds >> kind) & 1U) != 0; }

struct Node {
    std::uint32_t gpus = 0; // at most kMostGpusOfNode; 0 while the node is down
    // The leaf switch (rack, NVLink domain) that the node hangs on: 0, 1, 2 ... Gangs are kept under one
    // switch where there is room. One whose nodes are of several kinds counts as a leaf for each.
    std::uint32_t leaf = 0;
    std::uint32_t kind = 0; // below kMostKinds
    // Nothing new is placed here, and jobs leave as soon as their budgets and the other nodes allow.
    bool draining = false;
};

// A size at which a job can run: `gpus` GPUs in blocks of `block`, every block within one node. `block`
// divides `gpus`. 16 GPUs as two whole nodes of 8: {16, 8, ...}; as anything that adds up: {16, 1, ...}; 4
// GPUs in one node: {4, 4, ...}.
struct Size {
    std::uint32_t gpus = 0;
    std::uint32_t block = 1;
    Fraction speed = 0; // measured (or expected), relative to the size that was asked for, which has kOne
};

// GPUs of one node that a job has or is to have.
struct Share {
    std::uint32_t node = 0; // index in Snapshot::nodes
    std::uint32_t gpus = 0;
    bool operator==(const Share &) const = default;
};

enum class JobState : std::uint8_t {
    kPending, // holds nothing and can start
    kRunning, // at sizes[size] on its shares
    kMoving,  // an action is under way: not to be touched, and its shares not to be given to anybody
};

struct Job {
    std::uint64_t id = 0; // Slurm's; decides between jobs that are equal otherwise
    Tier tier = Tier::kBasic;
    JobState state = JobState::kPending;
    // Whether it may be shrunk, grown, migrated or told to yield at all: it can be checkpointed.
    bool movable = true;
    Kinds kinds = kAllKinds; // of the nodes that it may use
    std::uint32_t size = 0;  // kRunning: index of its size, from its first

    // Ranges in Snapshot::sizes (gpus and speed rise from the minimum to what was asked for; at least one)
    // and in Snapshot::shares (at most one of each node). Snapshot::add() sets them.
    std::uint32_t first_size = 0;
    std::uint32_t sizes = 0;
    std::uint32_t first_share = 0;
    std::uint32_t shares = 0;

    // From its ledger, advanced to Snapshot::now: Job::take() sets these six.
    Milliseconds elapsed = 0;      // since it became eligible
    Work work = 0;                 // received since then
    Milliseconds hour_elapsed = 0; // the same over the last hour
    Work hour_work = 0;
    Milliseconds gpu_time = 0;    // GPU milliseconds received
    std::uint32_t hour_moves = 0; // interruptions in the last hour

    Milliseconds since_move = 0;       // kRunning: since it last started or moved
    Milliseconds since_checkpoint = 0; // kRunning: since its last checkpoint, or since it started
    // What one interruption costs, from the moment it stops until it runs again: checkpoint, transfer,
    // restore, as measured.
    Milliseconds move_cost = 0;

    void take(const Ledger &ledger);
};

struct Snapshot {
    Milliseconds now = 0; // for those who build and show snapshots; the policy decides by differences alone
    std::vector<Node> nodes;
    std::vector<Job> jobs;
    std::vector<Size> sizes;
    std::vector<Share> shares;

    // Adds a job with its sizes and shares, returns its index. The job's ranges are set here.
    std::uint32_t add(Job job, std::span<const Size> job_sizes, std::span<const Share> job_shares = {});

    // Forgets the jobs and keeps the nodes and all memory: the next snapshot costs no allocation.
    void clear_jobs();

    [[nodiscard]] std::span<const Size> sizes_of(const Job &job) const {
        return std::span(sizes).subspan(job.first_size, job.sizes);
    }
    [[nodiscard]] std::span<const Share> shares_of(const Job &job) const {
        return std::span(shares).subspan(job.first_share, job.shares);
    }
};

} // namespace singularity::policy
