// SPDX-License-Identifier: GPL-2.0-or-later
// The policy: a snapshot in, ordered actions out. No clock, no input or output, no threads, no chance.
//
// What always holds of a plan (tests/unit/select-plugin/policy_properties.cpp checks each):
//   1. Never over-allocates: after every single action, in their order, no node has more GPUs given away than
//   it has, and
//      nothing is newly placed on a node that is draining, or of a kind that the job may not use.
//   2. Whole gangs only: a job that starts, shrinks, grows or migrates gets all blocks of one of its sizes,
//   each block within
//      one node; a job that yields gives back all it has. Every job has at most one action.
//   3. Never breaks a guarantee that could have been kept: nothing is taken from a job that needs it for its
//   own guarantee
//      (see Need below), unless, with Rules::strict_tiers, for the guarantee of a higher tier; and a job is
//      left below its need only where what is idle and what may be taken cannot help it.
//   4. No idle GPU that an admissible job could use: no pending job fits at any of its sizes into what is
//   left idle, and no
//      running job could grow into it, unless growing is not worth its cost or the job may not be moved now.
//   5. Never moves a job beyond its budget: not more often than its tier's moves_per_hour, not before its
//   least_run, never one
//      that is not movable or is moving.
//   6. As few victims as possible: shrinking comes before yielding, and that before giving up what is needed;
//   basic before standard before premium; then the fewest
//      victims, then those that give up least beyond what is wanted, then those with the freshest checkpoint.
//      No victim could have been left alone with the others still making room enough.
//   7. Defragments (migrates smaller jobs to make room in whole blocks) for a job where that costs less GPU
//   time than
//      letting the job wait.
//   8. The same snapshot and rules give the same plan, on every machine.
//
// Need: the smallest size at which a job, running at that size from now on, is not below its guarantee plus
// Rules::margin when Rules::horizon has passed, over its life and over the hour, a move that it takes
// included; at a speed below that, which it cannot keep, when Rules::payback has passed and it has moved
// back; the size that was asked for, if none is enough. A job of a tier without guarantee needs nothing, and
// so does one that is so far above its guarantee that it can pause.
//
// Cost: n log n in the number of nodes, jobs and shares.
#pragma once

#include "select-plugin/policy/snapshot.hpp"
#include "select-plugin/policy/tier.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::policy {

enum class ActionKind : std::uint8_t {
    kStart,   // a pending job, on the action's shares
    kShrink,  // to a smaller size, on a part of the shares it has
    kGrow,    // to a larger size
    kMigrate, // the same or (off a draining node) a smaller size on other shares
    kYield,   // gives back all it has and is pending again
};

enum class Reason : std::uint8_t {
    kGuarantee,  // the job served is or would be below its guarantee
    kService,    // the job served has received less than those that make room for it
    kIdle,       // GPUs are idle
    kDefragment, // room in one piece for the job served
    kDrain,      // the job's node is draining
};

constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();

struct Action {
    ActionKind kind = ActionKind::kStart;
    Reason reason = Reason::kIdle;
    std::uint32_t job = 0; // index in Snapshot::jobs
    // Index of the job that this makes room for: of shrink, migrate and yield; kNobody of actions for the
    // job's own sake.
    std::uint32_t beneficiary = kNobody;
    std::uint32_t size = 0;        // the new size, counted from the job's first; 0 of yield
    std::uint32_t first_share = 0; // range in Plan::shares: where the job is to run; empty of yield
    std::uint32_t shares = 0;
    // How far the job that is served (the beneficiary or else the job itself) would be below its guarantee
    // after the horizon if nothing were done; 0 if it is not.
    Fraction shortfall = 0;
};

// Why a job is left below its need, or pending.
enum class Obstacle : std::uint8_t {
    kNoRoom,   // nothing is idle or may be taken that helps
    kTooLarge, // its smallest size does not fit the cluster even when that is empty
};

struct Wait {
    std::uint32_t job = 0; // index in Snapshot::jobs
    Obstacle obstacle = Obstacle::kNoRoom;
    Fraction shortfall = 0; // as in Action
};

struct Plan {
    // In the order in which they must be carried out: an action may begin as soon as the GPUs of its shares
    // are free, which those before it see to.
    std::vector<Action> actions;
    std::vector<Share> shares;
    std::vector<Wait> waits;
    std::uint64_t idle_gpus = 0; // once all is carried out, without those of draining nodes

    [[nodiscard]] std::span<const Share> shares_of(const Action &action) const {
        return std::span(shares).subspan(action.first_share, action.shares);
    }
};

[[nodiscard]] std::string_view name_of(ActionKind kind);
[[nodiscard]] std::string_view name_of(Reason reason);

// One line for people: "yield job 17 (basic, 8 GPUs): makes room for job 4711 (premium), 12.3 % below its
// guarantee".
[[nodiscard]] std::string describe(const Action &action, const Snapshot &snapshot);
[[nodiscard]] std::string describe(const Wait &wait, const Snapshot &snapshot);

// Why the snapshot cannot be planned for, empty if it can. Everything that Planner::plan() relies on is
// checked here.
[[nodiscard]] std::string defect_of(const Snapshot &snapshot);

// How far below its guarantee a job would be after the horizon if it stayed as it is; 0 if it would not be.
[[nodiscard]] Fraction shortfall_of(const Job &job, const Snapshot &snapshot, const Rules &rules);

// The need of a job (see above): an index of its sizes counted from its first, or kNobody if it needs
// nothing. A job that does not run at that size is taken to need one move for it.
[[nodiscard]] std::uint32_t need_of(const Job &job, const Snapshot &snapshot, const Rules &rules);

// Makes plans and keeps its working memory from one to the next. One thread at a time.
class Planner {
  public:
    explicit Planner(const Rules &rules);
    ~Planner();
    Planner(Planner &&) noexcept;
    Planner &operator=(Planner &&) noexcept;
    Planner(const Planner &) = delete;
    Planner &operator=(const Planner &) = delete;

    // The plan for a snapshot without defects; valid until the next call. A snapshot with a defect is the
    // caller's error and gives an empty plan.
    const Plan &plan(const Snapshot &snapshot);

    [[nodiscard]] const Rules &rules() const;

  private:
    class State;
    std::unique_ptr<State> state_;
};

[[nodiscard]] Plan plan(const Snapshot &snapshot, const Rules &rules);

} // namespace singularity::policy
