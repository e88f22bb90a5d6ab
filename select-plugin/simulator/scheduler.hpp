// SPDX-License-Identifier: GPL-2.0-or-later
// What a scheduling policy is to the simulation.
#pragma once

#include "units.hpp"

#include <cstdint>

namespace singularity::simulator {

class World;
struct Job;

class Scheduler {
  public:
    Scheduler() = default;
    Scheduler(const Scheduler &) = delete;
    Scheduler &operator=(const Scheduler &) = delete;
    Scheduler(Scheduler &&) = delete;
    Scheduler &operator=(Scheduler &&) = delete;
    virtual ~Scheduler() = default;

    // Called after one or more things happened, at most once per planning period. Returns when it wants to be
    // called even if nothing happens; kNever: not at all.
    virtual Time plan(World &world) = 0;

    // The fewest GPUs on which it would start the job; one whose fewest do not fit the empty cluster is
    // rejected.
    [[nodiscard]] virtual std::int32_t least_of(const Job &job) const;

    // A job waits: it was submitted, or has lost its GPUs other than by this scheduler's own order.
    virtual void waits(const World &world, JobIndex job) = 0;
    // A job has left its GPUs other than by this scheduler's own order: it is finished or lost a node.
    virtual void left(const World &world, JobIndex job) = 0;
    // A job's size, placement or state will change, whoever ordered it.
    virtual void changes(const World & /*world*/, JobIndex /*job*/) {}
};

} // namespace singularity::simulator
