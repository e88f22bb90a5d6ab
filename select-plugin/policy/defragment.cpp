// SPDX-License-Identifier: GPL-2.0-or-later
// Who moves aside: there are GPUs enough, but not in one piece. Small jobs leave the nodes that are nearly
// free for places that are good for nothing larger, at the same size.
#include "state.hpp"

#include <algorithm>
#include <tuple>

namespace singularity::policy {
namespace {

// Nodes that are tried in vain for one job; bounds the time that a cluster full of immovable jobs costs.
constexpr std::uint32_t kMostTries = 16;

} // namespace

// How long the job would wait if nothing were done: nobody knows, so as long again as it went without in the
// last hour, and at least until the next look.
Milliseconds Planner::State::wait_of(const Job &job) const {
    return std::max(rules_.horizon, job.hour_elapsed - (job.hour_work / kOne));
}

// The job to other nodes, without using up blocks that are free; false: there is no such place, and the trial
// is to be undone.
bool Planner::State::move_aside(std::uint32_t job, std::uint32_t block) {
    const Job &record = snapshot_->jobs[job];
    const Size &size = snapshot_->sizes_of(record)[record.size];
    const std::size_t first_share = plan_.shares.size();
    const std::uint64_t blocks = capacity(block);
    if (!room_.take(size.gpus / size.block, size.block, record.kinds, plan_.shares))
        return false;
    for (std::size_t at = first_share; at < plan_.shares.size(); ++at)
        occupied(plan_.shares[at].node, plan_.shares[at].gpus);
    trial_.push_back({.job = job,
                      .to = record.size,
                      .migrant = true,
                      .first_share = static_cast<std::uint32_t>(first_share),
                      .shares = static_cast<std::uint32_t>(plan_.shares.size() - first_share)});
    withdraw(job);
    return capacity(block) == blocks;
}

void Planner::State::move_back(const Trial &trial) {
    for (const Share &share : snapshot_->shares_of(snapshot_->jobs[trial.job]))
        occupy(share.node, share.gpus);
    for (std::uint32_t at = trial.first_share; at < trial.first_share + trial.shares; ++at)
        release(plan_.shares[at].node, plan_.shares[at].gpus);
    plan_.shares.resize(trial.first_share);
    offer_again(trial.job);
}

// Whom to move for a block on the node, into picks_: one who is enough alone, the smallest such, else the
// largest and so on.
bool Planner::State::pick_migrants(std::uint32_t node, std::uint32_t block) {
    candidates_.clear();
    picks_.clear();
    for (std::uint32_t at = first_holding_[node]; at < first_holding_[node + 1]; ++at) {
        const std::uint32_t job = holdings_[at].job;
        const Working &working = working_[job];
        if (!working.decided && working.may_step_aside && snapshot_->jobs[job].shares == 1)
            candidates_.push_back({.amount = working.gpus,
                                   .stale = snapshot_->jobs[job].since_checkpoint,
                                   .pick = {.job = job}});
    }
    std::uint32_t lacking = block - room_.free(node);
    while (lacking > 0) {
        const auto preference = [lacking](const Candidate &candidate) {
            const bool enough = candidate.amount >= lacking;
            return std::tuple(!enough, enough ? candidate.amount : kMostGpusOfNode - candidate.amount,
                              candidate.stale, candidate.pick.job);
        };
        const auto best = std::ranges::min_element(candidates_, {}, preference);
        if (best == candidates_.end())
            return false;
        picks_.push_back(best->pick);
        lacking -= std::min(lacking, best->amount);
        *best = candidates_.back();
        candidates_.pop_back();
    }
    return true;
}

// Makes one block of the node's GPUs free, for at most `budget` GPU milliseconds of interruptions, or changes
// nothing. The node stays closed, so that no migrant comes to it.
bool Planner::State::clear_node(std::uint32_t node, std::uint32_t block, Milliseconds &budget) {
    if (!pick_migrants(node, block))
        return false;
    Milliseconds cost = 0;
    for (const Pick &pick : picks_)
        cost += snapshot_->jobs[pick.job].move_cost * working_[pick.job].gpus;
    if (cost > budget)
        return false;
    const std::size_t before = trial_.size();
    std::uint32_t free = room_.free(node);
    occupy(node, free);
    bool all = true;
    for (const Pick &pick : picks_) {
        const std::size_t trials = trial_.size();
        all = all && move_aside(pick.job, block);
        if (trial_.size() > trials)
            free += working_[pick.job].gpus;
    }
    if (all) {
        budget -= cost;
        cleared_.push_back({.node = node, .gpus = free});
        return true;
    }
    release(node, free);
    while (trial_.size() > before) {
        const Trial trial = trial_.back();
        trial_.pop_back();
        move_back(trial);
    }
    return false;
}

// The nodes that lack least for a block, those with most free GPUs first.
void Planner::State::order_clearing(std::uint32_t block, std::uint64_t most) {
    order_of_clearing_.clear();
    for (std::uint32_t gpus = std::min(block - 1, room_.most_gpus()); gpus > 0; --gpus) {
        for (std::uint32_t kind = 0; kind < room_.kinds(); ++kind) {
            if (!is_among(kind, kinds_))
                continue;
            for (std::uint32_t node = room_.first_with(kind, gpus); node != Room::kNone;
                 node = room_.next_with(node)) {
                if (order_of_clearing_.size() >= most)
                    return;
                if (snapshot_->nodes[node].gpus >= block)
                    order_of_clearing_.push_back(node);
            }
        }
    }
}

bool Planner::State::defragment(std::uint32_t beneficiary, std::uint64_t count, std::uint32_t block) {
    // Not for a job that runs: what it holds counts as free here, and a migrant would come before it has
    // left.
    if (block == 1 || working_[beneficiary].running || room_.idle() < count * block)
        return false;
    const std::uint64_t lacking = count - capacity(block);
    order_clearing(block, kMostTries + (2 * lacking));
    cleared_.clear();
    Milliseconds budget = Milliseconds{gain_} * wait_of(snapshot_->jobs[beneficiary]);
    for (const std::uint32_t node : order_of_clearing_) {
        if (cleared_.size() >= lacking)
            break;
        // It may have taken in a migrant of another node.
        if (room_.free(node) > 0)
            clear_node(node, block, budget);
    }
    for (const Share &cleared : cleared_)
        release(cleared.node, cleared.gpus);
    if (capacity(block) >= count)
        return true;
    undo_trial();
    return false;
}

} // namespace singularity::policy
