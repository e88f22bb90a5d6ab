// SPDX-License-Identifier: GPL-2.0-or-later
// The policy of singularity-planner (select-plugin/policy), driven by the simulation: a snapshot of the
// simulated cluster goes in, the plan's actions are carried out in their order.
#pragma once

#include "job.hpp"
#include "scheduler.hpp"
#include "select-plugin/policy/plan.hpp"
#include "units.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace singularity::simulator {

class Sla final : public Scheduler {
  public:
    explicit Sla(const policy::Rules &rules) : planner_(rules) {}

    Time plan(World &world) override;
    [[nodiscard]] std::int32_t least_of(const Job &job) const override { return job.minimum; }
    void waits(const World &world, JobIndex job) override;
    void left(const World &world, JobIndex job) override;
    void changes(const World &world, JobIndex job) override;

  private:
    void advance(const World &world, JobIndex index);
    void take_snapshot(const World &world);
    void add(const World &world, JobIndex index);
    void carry_out(World &world, const policy::Plan &plan, const policy::Action &action);
    const std::vector<policy::Size> &sizes_of(const World &world, const Job &job);

    policy::Planner planner_;
    policy::Snapshot snapshot_;
    std::vector<JobIndex> subjects_; // of the snapshot's jobs
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<policy::Size>>
        sizes_; // by demand and minimum
    // Ledgers of the jobs in the system only: they are large.
    std::vector<policy::Ledger> ledgers_;
    std::vector<std::uint32_t> free_ledgers_;
    std::vector<std::uint32_t> ledger_of_;
    std::set<JobIndex> running_;
    std::array<std::set<std::pair<Time, JobIndex>>, kTiers> waiting_; // by submission
};

} // namespace singularity::simulator
