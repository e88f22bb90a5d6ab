// SPDX-License-Identifier: GPL-2.0-or-later
// What is decided is done: by Slurm's public API alone, one request after the other, each of which leaves a
// job that goes on by itself. A job that is to move is requeued with the decision in its note
// (common/slurm/placement.hpp); the node agent that saves it sees to that before it may begin again. Nothing
// is held: who makes room begins a minute later, and again a minute later, as long as the planner says so.
#pragma once

#include "outlook.hpp"
#include "records.hpp"
#include "select-plugin/policy/plan.hpp"

#include <array>
#include <cstdint>
#include <string>

namespace singularity::planner {

// Since the planner began.
struct Done {
    std::array<std::uint64_t, 5> actions{}; // by policy::ActionKind
    std::uint64_t failed = 0;               // what slurmctld has refused
};

class Hands {
  public:
    Hands(Records &records, policy::Milliseconds now, Done &done)
        : records_(records), now_(now), done_(done) {}

    // plan: of pool.snapshot.
    void carry_out(const Pool &pool, const policy::Plan &plan);

    // Has Slurm order the jobs that wait by what they were promised (planner.priority_weight).
    void prioritise(const Pool &pool, const policy::Rules &rules, std::int64_t weight);

    // A decision that was never seen to, since the planner died in between or slurmctld did not requeue the
    // job.
    static void take_back(const slurm::Job &job);

  private:
    void start(const slurm::Job &job, std::uint32_t gpus, bool has_room);
    void move(const slurm::Job &job, const policy::Action &action, std::uint32_t gpus,
              std::vector<slurm::GpuShare> target);
    void keep_waiting(const slurm::Job &job);

    Records &records_;
    policy::Milliseconds now_;
    Done &done_;
    std::uint32_t prioritised_ = 0;
};

} // namespace singularity::planner
