// SPDX-License-Identifier: GPL-2.0-or-later
// Tiresias (Gu et al., NSDI'19), discretised two-dimensional least attained service: jobs that have had fewer
// GPU seconds come before those that have had more, in a few steps; within a step in the order of submission.
// Jobs run at full size; those that do not fit any more are preempted, which saves their state. Tiers mean
// nothing to it.
#pragma once

#include "scheduler.hpp"
#include "units.hpp"

#include <set>
#include <vector>

namespace singularity::simulator {

class Tiresias final : public Scheduler {
  public:
    Time plan(World &world) override;
    void waits(const World &world, JobIndex job) override;
    void left(const World &world, JobIndex job) override;

  private:
    struct Order {
        std::size_t queue;
        Time submit;
        JobIndex job;
        auto operator<=>(const Order &) const = default;
    };

    [[nodiscard]] static std::size_t queue_of(const World &world, JobIndex job);
    // Moves running jobs to the queue that they have come to; returns when the next will come to another.
    Time demote(const World &world);

    bool make_room(World &world, JobIndex job, const std::set<JobIndex> &stay);

    std::set<Order> jobs_;            // running and waiting
    std::vector<std::size_t> queues_; // of each job, as in jobs_
    std::set<JobIndex> running_;
};

} // namespace singularity::simulator
