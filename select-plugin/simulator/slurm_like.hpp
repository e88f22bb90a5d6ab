// SPDX-License-Identifier: GPL-2.0-or-later
// What Slurm does with multifactor priority dominated by QOS, sched/backfill and PreemptType=preempt/qos with
// PreemptMode=REQUEUE: in the order of tier and age jobs start at full size; the first that does not fit
// preempts jobs of lower tiers if that helps, else it gets a reservation; the others start if that does not
// delay it (EASY backfill, Lifka, JSSPP'95). A preempted job starts again from its last hourly checkpoint.
#pragma once

#include "scheduler.hpp"
#include "units.hpp"

#include <array>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace singularity::simulator {

class SlurmLike final : public Scheduler {
  public:
    Time plan(World &world) override;
    void waits(const World &world, JobIndex job) override;
    void left(const World &world, JobIndex job) override;

  private:
    struct Order {
        Tier tier;
        Time submit;
        JobIndex job;
        auto operator<=>(const Order &) const = default;
    };
    struct Reservation {
        Time when;          // the head of the queue can start then
        std::int64_t spare; // GPUs that it leaves free then
    };

    static Order order_of(const World &world, JobIndex job);
    bool start(World &world, JobIndex job);
    bool preempt_for(World &world, JobIndex index);
    [[nodiscard]] Reservation reserve(const World &world, JobIndex head) const;
    // When the job will have ended by its time limit, the only thing that Slurm knows of it.
    [[nodiscard]] static Time limit_from(const World &world, JobIndex job, Time start);

    std::set<Order> queue_;
    std::set<std::pair<Time, JobIndex>> by_limit_; // running
    std::vector<Time> limits_;                     // of each running job, as in by_limit_
    std::array<std::set<JobIndex>, kTiers> running_;
    std::array<std::int64_t, kTiers> held_{}; // GPUs of running jobs
};

} // namespace singularity::simulator
