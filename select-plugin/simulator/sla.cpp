// SPDX-License-Identifier: GPL-2.0-or-later
#include "sla.hpp"

#include "world.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

namespace singularity::simulator {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
// Of every tier, how many waiting jobs the policy is shown, the oldest first: in an overloaded cluster those
// behind them have no prospect, and a plan's time grows with what is shown.
constexpr std::size_t kMostWaitingShown = 2000;

policy::Fraction fraction(double value) { return std::llround(value * static_cast<double>(policy::kOne)); }

} // namespace

void Sla::waits(const World &world, JobIndex job) {
    ledger_of_.resize(world.jobs().size(), kNone);
    if (ledger_of_[job] == kNone) {
        if (free_ledgers_.empty()) {
            free_ledgers_.push_back(static_cast<std::uint32_t>(ledgers_.size()));
            ledgers_.emplace_back();
        }
        ledger_of_[job] = free_ledgers_.back();
        free_ledgers_.pop_back();
        ledgers_[ledger_of_[job]] = policy::Ledger(world.job(job).submit);
    }
    waiting_[index_of(world.job(job).tier)].insert({world.job(job).submit, job});
}

void Sla::left(const World &world, JobIndex job) {
    running_.erase(job);
    if (world.job(job).state == JobState::kFinished) {
        free_ledgers_.push_back(ledger_of_[job]);
        ledger_of_[job] = kNone;
    }
}

void Sla::changes(const World &world, JobIndex job) { advance(world, job); }

void Sla::advance(const World &world, JobIndex index) {
    const Job &job = world.job(index);
    policy::Ledger &ledger = ledgers_[ledger_of_[index]];
    if (job.state != JobState::kRunning) {
        ledger.advance(world.now(), 0, 0);
        return;
    }
    const auto gpus = static_cast<std::uint32_t>(job.gpus);
    if (ledger.until() < job.ready)
        ledger.advance(std::min(job.ready, world.now()), 0, gpus);
    ledger.advance(world.now(), fraction(job.speed), gpus);
}

const std::vector<policy::Size> &Sla::sizes_of(const World &world, const Job &job) {
    auto &sizes = sizes_[{job.demand, job.minimum}];
    if (sizes.empty()) {
        for (std::int32_t gpus = Costs::useful_size(job.demand, job.minimum, job.minimum);;
             gpus = Costs::next_size(job.demand, gpus)) {
            sizes.push_back({.gpus = static_cast<std::uint32_t>(gpus),
                             .block = static_cast<std::uint32_t>(world.pool().block_of(gpus)),
                             .speed = fraction(world.costs().speed(job.demand, gpus))});
            if (gpus == job.demand)
                break;
        }
    }
    return sizes;
}

void Sla::add(const World &world, JobIndex index) {
    const Job &job = world.job(index);
    advance(world, index);
    const auto &sizes = sizes_of(world, job);
    policy::Job shown;
    shown.id = index;
    shown.tier = static_cast<policy::Tier>(job.tier);
    shown.take(ledgers_[ledger_of_[index]]);
    std::vector<policy::Share> shares;
    if (job.state == JobState::kRunning) {
        shown.state = job.ready > world.now() ? policy::JobState::kMoving : policy::JobState::kRunning;
        const auto size = std::ranges::find(sizes, static_cast<std::uint32_t>(job.gpus), &policy::Size::gpus);
        shown.size = static_cast<std::uint32_t>(size - sizes.begin());
        shown.since_move = std::max<Time>(0, world.now() - job.ready);
        shown.since_checkpoint = world.since_checkpoint(index);
        shown.move_cost =
            world.costs().checkpoint(job.demand, job.gpus) + world.costs().restore(job.demand, job.gpus);
        for (const Share &share : job.placement)
            shares.push_back(
                {static_cast<std::uint32_t>(share.node), static_cast<std::uint32_t>(share.gpus)});
    } else {
        shown.state = job.available > world.now() ? policy::JobState::kMoving : policy::JobState::kPending;
        shown.move_cost = job.has_image ? world.costs().restore(job.demand, job.demand) : 0;
    }
    snapshot_.add(shown, sizes, shares);
    subjects_.push_back(index);
}

void Sla::take_snapshot(const World &world) {
    const Pool &pool = world.pool();
    snapshot_.now = world.now();
    snapshot_.nodes.resize(static_cast<std::size_t>(pool.nodes()));
    for (std::int32_t node = 0; node < pool.nodes(); ++node) {
        snapshot_.nodes[static_cast<std::size_t>(node)] = {
            .gpus = pool.is_up(node) ? static_cast<std::uint32_t>(pool.gpus_per_node()) : 0,
            .leaf = static_cast<std::uint32_t>(node / world.description().cluster.nodes_per_switch),
            .draining = false};
    }
    snapshot_.clear_jobs();
    subjects_.clear();
    for (const JobIndex job : running_)
        add(world, job);
    for (const auto &waiting : waiting_) {
        std::size_t shown = 0;
        for (const auto &[submit, job] : waiting) {
            if (++shown > kMostWaitingShown)
                break;
            add(world, job);
        }
    }
}

void Sla::carry_out(World &world, const policy::Plan &plan, const policy::Action &action) {
    const JobIndex job = subjects_[action.job];
    Placement placement;
    for (const policy::Share &share : plan.shares_of(action))
        placement.push_back({static_cast<std::int32_t>(share.node), static_cast<std::int32_t>(share.gpus)});
    const std::pair<Time, JobIndex> waiting{world.job(job).submit, job};
    auto &queue = waiting_[index_of(world.job(job).tier)];
    switch (action.kind) {
    case policy::ActionKind::kStart:
        world.start(job, placement);
        queue.erase(waiting);
        running_.insert(job);
        return;
    case policy::ActionKind::kYield:
        world.yield(job);
        running_.erase(job);
        queue.insert(waiting);
        break;
    case policy::ActionKind::kShrink:
    case policy::ActionKind::kGrow:
    case policy::ActionKind::kMigrate:
        world.move(job, placement);
        break;
    }
    ledgers_[ledger_of_[job]].moved(world.now());
}

Time Sla::plan(World &world) {
    take_snapshot(world);
    const policy::Plan &plan = planner_.plan(snapshot_);
    if (plan.actions.empty()) {
        if (const std::string defect = policy::defect_of(snapshot_); !defect.empty())
            throw std::logic_error(
                fmt::format("at {} s the policy cannot plan: {}", world.now() / kSecond, defect));
    }
    for (const policy::Action &action : plan.actions)
        carry_out(world, plan, action);
    // Guarantees come due and moves end without anything else happening.
    const bool unsettled =
        std::ranges::any_of(waiting_, [](const auto &waiting) { return !waiting.empty(); }) ||
        std::ranges::any_of(running_,
                            [&world](JobIndex job) { return world.job(job).gpus < world.job(job).demand; });
    return unsettled ? world.now() + world.description().planning.longest.count() : kNever;
}

} // namespace singularity::simulator
