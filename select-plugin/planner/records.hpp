// SPDX-License-Identifier: GPL-2.0-or-later
// What the planner remembers of each job from one look at the cluster to the next, and over its own death:
// what the job has received (its ledger), and what was last decided for it.
#pragma once

#include "common/error.hpp"
#include "common/slurm/controller.hpp"
#include "select-plugin/policy/ledger.hpp"
#include "select-plugin/policy/units.hpp"
#include "speeds.hpp"
#include "subject.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace singularity::planner {

// Plain data: it is saved as it is.
struct Record {
    std::uint64_t job = 0;
    policy::Ledger ledger;
    Speeds speeds = {};
    // It has been told to move or to yield, and is taken to be doing it until then or until it runs again; 0:
    // it has not.
    policy::Milliseconds moving_until = 0;
    policy::Milliseconds moving_since = 0;
    // There has been room for it since then, and Slurm has not started it; 0: there was none.
    policy::Milliseconds offered = 0;
    // Slurm does not start it though there is room: it is not planned for until then.
    policy::Milliseconds excused_until = 0;
    // A limit of its QOS or association has kept it from starting with `refused` GPUs: until then it is
    // offered at most half of them, and does not grow; 0: none has.
    policy::Milliseconds refused_until = 0;
    policy::Milliseconds resized = 0; // when the size that it waits with was given to it; 0: it is its user's
    policy::Milliseconds cost = 0;    // of its last move, from its end to its going on; 0: none was measured
    std::uint32_t moving_to = 0;      // GPUs; 0: it yields
    std::uint32_t refused = 0;
    std::uint32_t runs = 0; // restarts, as Slurm counts them, when it was told to move
    bool yielded = false;   // it waits since it was told to, and does not begin before it is allowed to
};

// The cost of a move of which nothing is known.
constexpr policy::Milliseconds kUsualCost = policy::kMinute;
// A checkpoint of a large job, Slurm's requeue and the restore.
constexpr policy::Milliseconds kMostMoving = 15 * policy::kMinute;
// Slurm plans anew every minute at the latest (sched_interval), and backfill every half.
constexpr policy::Milliseconds kMostOffered = 3 * policy::kMinute;
constexpr policy::Milliseconds kExcused = 10 * policy::kMinute;
// Why a job waits is of its present size when Slurm has planned since it was given that.
constexpr policy::Milliseconds kSettled = policy::kMinute;
// Limits are seldom changed, and each try costs the job a move. What others use of a limit changes sooner.
constexpr policy::Milliseconds kRefused = policy::kHour;

class Records {
  public:
    // allowed: the sizes of which no job's may be smaller or larger, whatever its user allows.
    void allow(const Range &allowed) { allowed_ = allowed; }
    // With the speeds that were measured, and without what a limit has refused.
    [[nodiscard]] std::vector<policy::Size> sizes_of(const slurm::Job &job) const;

    // All jobs with GPUs that have not ended: ledgers are brought to `now` (milliseconds since 1970), new
    // jobs get one from the moment they became eligible, those of jobs that are gone are dropped.
    void look(std::span<const slurm::Job> jobs, policy::Milliseconds now);

    // Of a job that look() has seen; nullptr: it has not.
    [[nodiscard]] Record *find(std::uint64_t job);

    // Where a job is to be that has been told to move, not saved: after a death of the planner it is where it
    // is. Empty: nobody knows, or it yields.
    [[nodiscard]] std::vector<slurm::GpuShare> target_of(std::uint64_t job) const;
    void aim(std::uint64_t job, std::vector<slurm::GpuShare> target) { targets_[job] = std::move(target); }

    [[nodiscard]] std::size_t size() const { return records_.size(); }

    // As bytes for a file. read: an error, which names the reason, leaves what there is.
    [[nodiscard]] std::string write() const;
    [[nodiscard]] Expected<void> read(std::string_view bytes, std::string_view name);

  private:
    std::map<std::uint64_t, Record> records_;
    std::map<std::uint64_t, std::vector<slurm::GpuShare>> targets_;
    Range allowed_ = kAnySize;
};

} // namespace singularity::planner
