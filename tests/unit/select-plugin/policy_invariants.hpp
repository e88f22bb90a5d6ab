// SPDX-License-Identifier: GPL-2.0-or-later
// The invariants of select-plugin/policy/plan.hpp, each checked from the snapshot and the plan alone, in the
// plainest way: nothing of the planner's own is used but need_of(), which has tests of its own.
#pragma once

#include "select-plugin/policy/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace singularity::policy::testing {

class Invariants {
  public:
    Invariants(const Snapshot &snapshot, const Rules &rules, const Plan &plan)
        : snapshot_(snapshot), rules_(rules), plan_(plan), action_of_(snapshot.jobs.size(), nullptr) {}

    // What is violated; empty if nothing is.
    std::string violation() {
        using Check = std::string (Invariants::*)();
        for (const Check check : {&Invariants::gangs, &Invariants::allocation, &Invariants::budgets,
                                  &Invariants::guarantees, &Invariants::idle, &Invariants::victims}) {
            if (std::string found = (this->*check)(); !found.empty())
                return found;
        }
        return {};
    }

  private:
    [[nodiscard]] const Job &job_of(const Action &action) const { return snapshot_.jobs[action.job]; }

    [[nodiscard]] bool interrupts(const Action &action) const { return action.kind != ActionKind::kStart; }

    std::string gang(const Action &action) {
        const Job &job = job_of(action);
        const auto shares = plan_.shares_of(action);
        if (action.kind == ActionKind::kYield)
            return shares.empty() ? "" : "a job that yields keeps shares";
        const Size &size = snapshot_.sizes_of(job)[action.size];
        std::uint32_t gpus = 0;
        for (std::size_t at = 0; at < shares.size(); ++at) {
            gpus += shares[at].gpus;
            for (std::size_t other = 0; other < at; ++other) {
                if (shares[other].node == shares[at].node)
                    return "two shares of a node";
            }
        }
        std::uint32_t blocks = 0;
        for (const Share &share : shares)
            blocks += share.gpus / size.block;
        if (gpus != size.gpus && action.kind != ActionKind::kShrink)
            return fmt::format("{} GPUs of {}", gpus, size.gpus);
        if (gpus != size.gpus || blocks * size.block != gpus)
            return fmt::format("{} GPUs in {} blocks of {} are not {}", gpus, blocks, size.block, size.gpus);
        const bool larger = action.size > job.size;
        const bool smaller = action.size < job.size;
        if ((action.kind == ActionKind::kShrink && !smaller) ||
            (action.kind == ActionKind::kGrow && !larger) || (action.kind == ActionKind::kMigrate && larger))
            return fmt::format("{} from size {} to {}", name_of(action.kind), job.size, action.size);
        if (action.kind == ActionKind::kShrink) {
            for (const Share &share : shares) {
                const auto had = snapshot_.shares_of(job);
                const auto same = std::ranges::find(had, share.node, &Share::node);
                if (same == had.end() || same->gpus < share.gpus)
                    return "a job that shrinks gets something new";
            }
        }
        return {};
    }

    std::string gangs() {
        for (const Action &action : plan_.actions) {
            if (action.job >= snapshot_.jobs.size())
                return "an action of no job";
            if (action_of_[action.job] != nullptr)
                return fmt::format("two actions of job {}", job_of(action).id);
            action_of_[action.job] = &action;
            const JobState wanted =
                action.kind == ActionKind::kStart ? JobState::kPending : JobState::kRunning;
            if (job_of(action).state != wanted)
                return fmt::format("{} a job in another state", name_of(action.kind));
            if (std::string found = gang(action); !found.empty())
                return fmt::format("{}: {}", describe(action, snapshot_), found);
        }
        return {};
    }

    std::string allocation() {
        used_.assign(snapshot_.nodes.size(), 0);
        for (const Share &share : snapshot_.shares)
            used_[share.node] += share.gpus;
        for (const Action &action : plan_.actions) {
            const auto had = snapshot_.shares_of(job_of(action));
            for (const Share &share : had)
                used_[share.node] -= share.gpus;
            for (const Share &share : plan_.shares_of(action)) {
                used_[share.node] += share.gpus;
                const Node &node = snapshot_.nodes[share.node];
                if (used_[share.node] > node.gpus)
                    return fmt::format("{}: node {} has {} of {} GPUs given away",
                                       describe(action, snapshot_), share.node, used_[share.node], node.gpus);
                if (!is_among(node.kind, job_of(action).kinds))
                    return fmt::format("{}: on node {}, which it may not use", describe(action, snapshot_),
                                       share.node);
                const auto same = std::ranges::find(had, share.node, &Share::node);
                if (node.draining && (same == had.end() || same->gpus < share.gpus))
                    return fmt::format("{}: on node {}, which drains", describe(action, snapshot_),
                                       share.node);
            }
        }
        std::uint64_t idle = 0;
        for (std::uint32_t node = 0; node < used_.size(); ++node)
            idle += free(node);
        return idle == plan_.idle_gpus ? "" : fmt::format("{} GPUs are idle, not {}", idle, plan_.idle_gpus);
    }

    [[nodiscard]] std::uint32_t free(std::uint32_t node) const {
        return snapshot_.nodes[node].draining ? 0 : snapshot_.nodes[node].gpus - used_[node];
    }

    [[nodiscard]] bool may_move(const Job &job) const {
        const TierRules &tier = rules_.of(job.tier);
        return job.state == JobState::kRunning && job.movable && job.hour_moves < tier.moves_per_hour &&
               job.since_move >= tier.least_run;
    }
    [[nodiscard]] bool may_volunteer(const Job &job) const {
        const TierRules &tier = rules_.of(job.tier);
        return may_move(job) && job.hour_moves < tier.moves_per_hour - (tier.moves_per_hour / 2);
    }

    std::string budgets() {
        for (const Action &action : plan_.actions) {
            const bool voluntary = action.reason == Reason::kDefragment ||
                                   (action.kind == ActionKind::kGrow && action.reason != Reason::kGuarantee);
            if (!interrupts(action))
                continue;
            if (!may_move(job_of(action)) || (voluntary && !may_volunteer(job_of(action))))
                return fmt::format("{}: beyond its budget", describe(action, snapshot_));
        }
        return {};
    }

    // Whether what a job needs itself may be taken for the guarantee of one of that tier.
    [[nodiscard]] bool gives_way(const Job &job, Tier served) const {
        return rules_.strict_tiers && job.tier > served;
    }

    // GPUs of a share that may still be taken for a guarantee of the tier, once the plan is carried out.
    [[nodiscard]] std::uint32_t takeable(std::uint32_t index, const Share &share, Tier served) const {
        const Job &job = snapshot_.jobs[index];
        if (action_of_[index] != nullptr || !may_move(job))
            return 0;
        const std::uint32_t need = need_of(job, snapshot_, rules_);
        if (need == kNobody || gives_way(job, served))
            return share.gpus;
        // A gang may give back what does not help: only of a job in one node is it known where.
        return job.shares == 1 && need < job.size ? share.gpus - snapshot_.sizes_of(job)[need].gpus : 0;
    }

    std::string guarantees() {
        for (const Action &action : plan_.actions) {
            const std::uint32_t need = need_of(job_of(action), snapshot_, rules_);
            const bool too_little =
                need != kNobody && (action.kind == ActionKind::kYield || action.size < need);
            const bool takes = action.kind == ActionKind::kYield || action.kind == ActionKind::kShrink ||
                               (action.kind == ActionKind::kMigrate && action.size < job_of(action).size);
            const bool gave_way = action.reason == Reason::kGuarantee && action.beneficiary != kNobody &&
                                  gives_way(job_of(action), snapshot_.jobs[action.beneficiary].tier);
            if (takes && too_little && !gave_way)
                return fmt::format("{}: it needs size {} itself", describe(action, snapshot_), need);
            if (action.kind == ActionKind::kYield && action.reason == Reason::kService &&
                rules_.of(job_of(action).tier).guarantee > 0)
                return fmt::format("{}: pauses a job with a guarantee for nobody's guarantee",
                                   describe(action, snapshot_));
        }
        for (const Tier tier : {Tier::kPremium, Tier::kStandard, Tier::kBasic}) {
            if (std::string found = left_below(tier); !found.empty())
                return found;
        }
        return {};
    }

    // Who of the tier is left below its need: would yielding by all that may yield have helped?
    std::string left_below(Tier tier) {
        std::vector<std::uint32_t> could(snapshot_.nodes.size());
        for (std::uint32_t node = 0; node < could.size(); ++node)
            could[node] = free(node);
        for (std::uint32_t index = 0; index < snapshot_.jobs.size(); ++index) {
            for (const Share &share : snapshot_.shares_of(snapshot_.jobs[index])) {
                if (!snapshot_.nodes[share.node].draining)
                    could[share.node] += takeable(index, share, tier);
            }
        }
        for (std::uint32_t index = 0; index < snapshot_.jobs.size(); ++index) {
            const Job &job = snapshot_.jobs[index];
            const std::uint32_t need = need_of(job, snapshot_, rules_);
            const bool running = job.state == JobState::kRunning;
            if (job.tier != tier || need == kNobody || action_of_[index] != nullptr ||
                job.state == JobState::kMoving || (running && (!may_move(job) || job.size >= need)))
                continue;
            for (std::uint32_t size = running ? job.size + 1 : 0; size <= need; ++size) {
                if ((!running || worth_growing(job, size)) && fits(could, job, snapshot_.sizes_of(job)[size]))
                    return fmt::format("job {} is left below its guarantee though its size {} could be had",
                                       job.id, size);
            }
        }
        return {};
    }

    [[nodiscard]] bool worth_growing(const Job &job, std::uint32_t size) const {
        const auto sizes = snapshot_.sizes_of(job);
        return (sizes[size].speed - sizes[job.size].speed) * rules_.payback >
               sizes[size].speed * job.move_cost;
    }

    // Whether a size fits into the free GPUs of each node that the job may use, and those that it has.
    [[nodiscard]] bool fits(std::vector<std::uint32_t> room, const Job &job, const Size &size) const {
        for (const Share &share : snapshot_.shares_of(job)) {
            if (!snapshot_.nodes[share.node].draining)
                room[share.node] += share.gpus;
        }
        std::uint64_t blocks = 0;
        for (std::uint32_t node = 0; node < room.size(); ++node)
            blocks += is_among(snapshot_.nodes[node].kind, job.kinds) ? room[node] / size.block : 0;
        return blocks >= size.gpus / size.block;
    }

    std::string idle() {
        std::vector<std::uint32_t> room(snapshot_.nodes.size());
        for (std::uint32_t node = 0; node < room.size(); ++node)
            room[node] = free(node);
        for (std::uint32_t index = 0; index < snapshot_.jobs.size(); ++index) {
            const Job &job = snapshot_.jobs[index];
            if (action_of_[index] != nullptr || job.state == JobState::kMoving)
                continue;
            const bool running = job.state == JobState::kRunning;
            if (running && !may_volunteer(job))
                continue;
            for (std::uint32_t size = running ? job.size + 1 : 0; size < job.sizes; ++size) {
                if ((!running || worth_growing(job, size)) && fits(room, job, snapshot_.sizes_of(job)[size]))
                    return fmt::format("job {} could have size {} of what is idle", job.id, size);
            }
        }
        return {};
    }

    // With everything else as planned, no victim could have been left as it was: some node would be
    // over-allocated. Where several are served, one may use what was left over by another's victims: only
    // plans that serve one are looked at.
    std::string victims() {
        const auto serves = [](const Action &action) { return action.beneficiary == kNobody; };
        if (std::ranges::count_if(plan_.actions, serves) != 1)
            return {};
        for (const Action &action : plan_.actions) {
            if (serves(action) || action.kind == ActionKind::kMigrate)
                continue;
            auto used = used_;
            for (const Share &share : plan_.shares_of(action))
                used[share.node] -= share.gpus;
            bool needed = false;
            for (const Share &share : snapshot_.shares_of(job_of(action))) {
                used[share.node] += share.gpus;
                needed = needed || used[share.node] > snapshot_.nodes[share.node].gpus;
            }
            if (!needed)
                return fmt::format("{}: not needed", describe(action, snapshot_));
        }
        return {};
    }

    const Snapshot &snapshot_;
    const Rules &rules_;
    const Plan &plan_;
    std::vector<const Action *> action_of_;
    std::vector<std::uint32_t> used_;
};

} // namespace singularity::policy::testing
