// SPDX-License-Identifier: GPL-2.0-or-later
// Elasticity without service levels: every job is given its least size in the order of submission, for which
// the fastest jobs are shrunk; what is idle goes to the slowest. Nobody is preempted. Tiers mean nothing to
// it.
#pragma once

#include "job.hpp"
#include "scheduler.hpp"
#include "units.hpp"

#include <set>
#include <utility>
#include <vector>

namespace singularity::simulator {

class ElasticFair final : public Scheduler {
  public:
    Time plan(World &world) override;
    [[nodiscard]] std::int32_t least_of(const Job &job) const override { return job.minimum; }
    void waits(const World &world, JobIndex job) override;
    void left(const World &world, JobIndex job) override;

  private:
    bool start(World &world, JobIndex index);
    bool shrink_for(World &world, JobIndex index);
    void grow(World &world);

    std::set<std::pair<Time, JobIndex>> queue_; // by submission
    std::set<JobIndex> running_;
};

} // namespace singularity::simulator
