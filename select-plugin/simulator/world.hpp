// SPDX-License-Identifier: GPL-2.0-or-later
// The simulation: time, jobs, nodes, and what may be done to them. A scheduler's orders are carried out at
// once as far as who holds which GPU is concerned; what they cost is time without progress. GPUs that are
// given up and still read by a checkpoint can be held by the next job already, which then begins later. So
// the cluster is always as the scheduler decided, and every GPU second is somebody's.
#pragma once

#include "accounting.hpp"
#include "costs.hpp"
#include "description.hpp"
#include "failures.hpp"
#include "job.hpp"
#include "pool.hpp"
#include "scheduler.hpp"
#include "trace.hpp"
#include "units.hpp"

#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <vector>

namespace singularity::simulator {

class World {
  public:
    // The trace in the order of submission. Tiers that it does not name are drawn by the job's id and the
    // seed.
    World(const Description &description, std::span<const TraceJob> trace, std::uint64_t seed);

    // Until every job is finished, rejected, or can never start. `progress` is told the share of the jobs
    // that are done.
    void run(Scheduler &scheduler, const std::function<void(double)> &progress = {});

    [[nodiscard]] Time now() const { return now_; }
    [[nodiscard]] const Pool &pool() const { return pool_; }
    [[nodiscard]] const Costs &costs() const { return costs_; }
    [[nodiscard]] const Description &description() const { return description_; }
    [[nodiscard]] const std::vector<Job> &jobs() const { return jobs_; }
    [[nodiscard]] const Job &job(JobIndex index) const { return jobs_[index]; }
    [[nodiscard]] const Accounting &accounting() const { return accounting_; }
    [[nodiscard]] std::uint64_t plans() const { return plans_; }
    [[nodiscard]] std::uint64_t failures() const { return failed_nodes_; }

    // Work left now, in milliseconds at full size.
    [[nodiscard]] double left(JobIndex index) const;
    // Since its last checkpoint.
    [[nodiscard]] Time since_checkpoint(JobIndex index) const;
    // GPU milliseconds that the job has held up to now.
    [[nodiscard]] double held(JobIndex index) const;

    // Orders. Of a waiting job: the placement must be free.
    void start(JobIndex index, const Placement &placement);
    // Of a running job; the new placement must be free or its own. It stands still for a checkpoint and a
    // restore.
    void move(JobIndex index, const Placement &placement);
    // Of a running job: it saves its state, then waits. No work is lost.
    void yield(JobIndex index);
    // Of a running job: it waits, and has lost what it did since its last checkpoint.
    void kill(JobIndex index);

  private:
    enum class EventKind : std::uint8_t { kEnd, kFail, kRepair };
    struct Event {
        Time when;
        std::uint64_t sequence; // of two events at one time, the one that was planned first
        EventKind kind;
        std::uint32_t subject; // job or node
        std::uint32_t generation;
    };
    struct Later {
        bool operator()(const Event &a, const Event &b) const {
            return a.when != b.when ? a.when > b.when : a.sequence > b.sequence;
        }
    };

    void push(Time when, EventKind kind, std::uint32_t subject, std::uint32_t generation = 0);
    void settle(Job &job) const; // its accounts up to now
    void begin(JobIndex index, const Placement &placement, Time ready);
    void leave(JobIndex index, Time ready); // gives its GPUs back
    Time save(JobIndex index);              // leaves with a checkpoint; when that is complete
    [[nodiscard]] Time restore_time(const Job &job, const Placement &placement) const;
    void lose(Job &job) const; // back to its last checkpoint
    void count();              // tells the accounting
    void submit(JobIndex index);
    void handle(const Event &event);
    void fail(std::int32_t node);

    Description description_;
    Costs costs_;
    Pool pool_;
    Accounting accounting_;
    Failures failures_;
    std::vector<Job> jobs_;
    std::vector<std::vector<JobIndex>> on_node_;
    std::priority_queue<Event, std::vector<Event>, Later> events_;
    std::uint64_t sequence_ = 0;
    Scheduler *scheduler_ = nullptr;
    Time now_ = 0;
    std::size_t next_ = 0;    // the next job to be submitted
    std::size_t done_ = 0;    // finished or rejected
    std::int64_t demand_ = 0; // GPUs asked for by jobs that wait or run
    std::uint64_t plans_ = 0;
    std::uint64_t failed_nodes_ = 0;
};

// Nodes that a description means for a trace.
[[nodiscard]] std::int32_t nodes_for(const Description &description, std::span<const TraceJob> trace);

} // namespace singularity::simulator
