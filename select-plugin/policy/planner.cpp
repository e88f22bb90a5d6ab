// SPDX-License-Identifier: GPL-2.0-or-later
// The steps of a plan. Each step gives capacity to the jobs of one kind, in its order, and none takes back
// what an earlier one gave:
//
//   1. jobs that are or would be below their guarantee, the furthest below first: idle GPUs, defragmentation,
//   victims;
//   2. jobs on draining nodes: idle GPUs elsewhere;
//   3. pending jobs, those that received least first, at their smallest size: idle GPUs, defragmentation,
//   victims that
//      received more;
//   4. what is idle then: more pending jobs, then larger sizes, until nothing fits any more.
#include "state.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace singularity::policy {
namespace {

// Less than `levels`.
std::uint8_t level_of(Milliseconds gpu_time, Milliseconds quantum, std::uint32_t levels) {
    std::uint8_t level = 0;
    for (Milliseconds bound = std::max<Milliseconds>(quantum, 1); gpu_time >= bound && level + 1U < levels;
         bound *= 4)
        ++level;
    return level;
}

} // namespace

void Planner::State::prepare_job(std::uint32_t index) {
    const Job &job = snapshot_->jobs[index];
    const TierRules &tier = rules_.of(job.tier);
    Working &working = working_[index];
    working = {};
    working.tier = job.tier;
    working.level = level_of(job.gpu_time, rules_.service_quantum, kMostLevels);
    working.serves_service = job.tier != Tier::kPremium;
    working.best_effort = tier.guarantee == 0;
    working.running = job.state == JobState::kRunning;
    working.decided = job.state == JobState::kMoving;
    working.need = need_of(job, *snapshot_, rules_);
    if (working.need != kNobody)
        working.shortfall = shortfall_of(job, *snapshot_, rules_);
    for (const Share &share : snapshot_->shares_of(job)) {
        working.gpus += share.gpus;
        free_[share.node] -= share.gpus;
    }
    if (!working.running || !job.movable || job.since_move < tier.least_run)
        return;
    working.may_move = job.hour_moves < tier.moves_per_hour;
    working.may_volunteer = job.hour_moves < tier.moves_per_hour - (tier.moves_per_hour / 2);
    // One that is to grow for its own guarantee has a better use for its action.
    const bool is_served = working.need == kNobody || job.size >= working.need;
    working.may_step_aside = working.may_volunteer && is_served && bears_move(job, *snapshot_, rules_);
}

// What may be taken from a running job without hurting its guarantee.
void Planner::State::prepare_victim(std::uint32_t index) {
    const Job &job = snapshot_->jobs[index];
    Working &working = working_[index];
    if (!working.may_move)
        return;
    working.may_yield = working.need == kNobody;
    working.gives_way = rules_.strict_tiers && !working.may_yield;
    const auto sizes = snapshot_->sizes_of(job);
    for (std::uint32_t size = working.may_yield ? 0 : working.need; size < job.size; ++size) {
        if (in_place(job, sizes[size])) {
            working.shrink_to = size;
            break;
        }
    }
    if (working.shrink_to != kNobody) {
        each_release(index, working.shrink_to, [this](std::uint32_t share, std::uint32_t gpus) {
            shrink_release_[share] = static_cast<std::uint8_t>(gpus);
        });
    }
    if (working.may_yield || working.gives_way)
        gangs_[rank_of(working, true) - kYielding].push_back(index);
}

void Planner::State::prepare() {
    const auto &nodes = snapshot_->nodes;
    const auto &jobs = snapshot_->jobs;
    std::array<bool, kMostGpusOfNode + 1> used{};
    for (const Size &size : snapshot_->sizes)
        used[size.block] = true;
    blocks_.clear();
    for (std::uint32_t block = 1; block <= kMostGpusOfNode; ++block) {
        block_index_[block] = static_cast<std::uint32_t>(blocks_.size());
        if (used[block])
            blocks_.push_back(block);
    }
    free_.resize(nodes.size());
    std::ranges::transform(nodes, free_.begin(), &Node::gpus);
    working_.resize(jobs.size());
    for (std::uint32_t index = 0; index < jobs.size(); ++index)
        prepare_job(index);
    room_.reset(nodes, blocks_, free_);
    empty_capacity_.reset(room_.kinds(), blocks_.size());
    for (const Node &node : nodes)
        if (!node.draining)
            empty_capacity_.add(node.kind, room_.fits(node.gpus));

    shrink_release_.assign(snapshot_->shares.size(), 0);
    for (auto &gangs : gangs_)
        gangs.clear();
    first_holding_.assign(nodes.size() + 1, 0);
    for (std::uint32_t index = 0; index < jobs.size(); ++index) {
        prepare_victim(index);
        if (!working_[index].may_move)
            continue;
        for (const Share &share : snapshot_->shares_of(jobs[index]))
            ++first_holding_[share.node];
    }
    for (auto &gangs : gangs_) {
        std::ranges::sort(gangs, {}, [this](std::uint32_t job) {
            return std::tuple(~working_[job].gpus, snapshot_->jobs[job].since_checkpoint,
                              snapshot_->jobs[job].id, job);
        });
    }
    // Each entry is where its node's holdings end; filling from the back makes it where they begin.
    std::partial_sum(first_holding_.begin(), first_holding_.end(), first_holding_.begin());
    holdings_.resize(first_holding_.back());
    for (std::uint32_t index = 0; index < jobs.size(); ++index) {
        for (std::uint32_t share = 0; share < jobs[index].shares && working_[index].may_move; ++share) {
            const std::uint32_t at = jobs[index].first_share + share;
            holdings_[--first_holding_[snapshot_->shares[at].node]] = {.job = index, .share = at};
        }
    }
    first_victim_.fill(0);
    for (const Working &working : working_)
        first_victim_[working.level] += working.may_move ? 1 : 0;
    std::partial_sum(first_victim_.begin(), first_victim_.end(), first_victim_.begin());
    victims_.resize(first_victim_.back());
    for (std::uint32_t index = 0; index < jobs.size(); ++index)
        if (working_[index].may_move)
            victims_[--first_victim_[working_[index].level]] = index;
    offers_.resize(blocks_.size());
    reset_potential();
}

const Plan &Planner::State::make(const Snapshot &snapshot) {
    plan_.actions.clear();
    plan_.shares.clear();
    plan_.waits.clear();
    plan_.idle_gpus = 0;
    if (!defect_of(snapshot).empty())
        return plan_;
    snapshot_ = &snapshot;
    prepare();
    // A job that went elsewhere may have left a hole in which one that was looked at before it fits now.
    do {
        relocated_ = false;
        serve_guarantees();
        leave_draining_nodes();
        serve_by_service();
        while (fill()) {
        }
        if (relocated_ && mode_.service)
            set_mode({});
    } while (relocated_);
    // Starts that were enlarged have left their first place in the order.
    std::erase_if(plan_.actions, [](const Action &action) { return action.job == kNobody; });
    note_waits();
    plan_.idle_gpus = room_.idle();
    snapshot_ = nullptr;
    return plan_;
}

void Planner::State::serve_guarantees() {
    order_.clear();
    for (std::uint32_t index = 0; index < working_.size(); ++index) {
        const Working &working = working_[index];
        if (working.decided || working.need == kNobody)
            continue;
        if (!working.running || (working.may_move && snapshot_->jobs[index].size < working.need))
            order_.push_back(index);
    }
    std::ranges::sort(order_, {}, [this](std::uint32_t index) {
        const Job &job = snapshot_->jobs[index];
        return std::tuple(rules_.strict_tiers ? job.tier : Tier::kPremium, -working_[index].shortfall,
                          job.tier, -job.elapsed, job.id, index);
    });
    for (const std::uint32_t index : order_) {
        const Job &job = snapshot_->jobs[index];
        if (working_[index].decided) // it made room for one before it
            continue;
        if (rules_.strict_tiers && mode_.served != job.tier)
            set_mode({.served = job.tier});
        const std::uint32_t least = working_[index].running ? job.size + 1 : 0;
        for (std::uint32_t size = working_[index].need + 1; size > least; --size) {
            if (serve(index, size - 1, Reason::kGuarantee, Means::kVictims))
                break;
        }
    }
}

bool Planner::State::has_share_of_draining_node(const Job &job) const {
    return std::ranges::any_of(snapshot_->shares_of(job),
                               [this](const Share &share) { return !room_.open(share.node); });
}

void Planner::State::leave_draining_nodes() {
    for (std::uint32_t index = 0; index < working_.size(); ++index) {
        const Working &working = working_[index];
        const Job &job = snapshot_->jobs[index];
        if (working.decided || !working.may_move || !has_share_of_draining_node(job))
            continue;
        const std::uint32_t least = working.need == kNobody ? 0 : std::min(working.need, job.size);
        for (std::uint32_t size = job.size + 1; size > least; --size) {
            if (serve(index, size - 1, Reason::kDrain, Means::kIdle))
                break;
        }
    }
}

void Planner::State::serve_by_service() {
    by_service_.clear();
    for (std::uint32_t index = 0; index < working_.size(); ++index) {
        if (snapshot_->jobs[index].state != JobState::kMoving)
            by_service_.push_back(index);
    }
    std::ranges::sort(by_service_, {}, [this](std::uint32_t index) {
        const Job &job = snapshot_->jobs[index];
        return std::tuple(working_[index].level, job.tier, -job.elapsed, job.id, index);
    });
    for (auto begin = by_service_.begin(); begin != by_service_.end();) {
        const std::uint32_t level = working_[*begin].level;
        const auto end = std::find_if(begin, by_service_.end(), [this, level](std::uint32_t index) {
            return working_[index].level != level;
        });
        start_by_service({begin, end}, level);
        if (level + 1 < kMostLevels)
            grow_by_service({begin, end}, level);
        begin = end;
    }
}

// If what is idle and what those that received more can give is enough for all, everybody gets what he asked
// for, else as many as possible get their smallest size, and those that received as much shrink for it.
void Planner::State::start_by_service(std::span<const std::uint32_t> jobs, std::uint32_t level) {
    const auto waits = [this](std::uint32_t index) {
        return !working_[index].decided && !working_[index].running;
    };
    if (std::ranges::none_of(jobs, waits))
        return;
    std::uint64_t wanted = 0;
    for (const std::uint32_t index : jobs)
        wanted += waits(index) ? snapshot_->sizes_of(snapshot_->jobs[index]).back().gpus : 0;
    set_mode({.service = true, .shrink_level = level + 1, .yield_level = level + 1});
    const bool enough_for_all =
        std::accumulate(potential_.begin(), potential_.end(), std::uint64_t{0}) >= wanted;
    for (const std::uint32_t index : jobs) {
        std::uint32_t size = enough_for_all ? snapshot_->jobs[index].sizes : 1;
        while (waits(index) && size > 0 && !serve(index, size - 1, Reason::kService, Means::kVictims))
            --size;
    }
    if (std::ranges::none_of(jobs, waits))
        return;
    set_mode({.service = true, .shrink_level = level, .yield_level = level + 1});
    for (const std::uint32_t index : jobs) {
        if (waits(index))
            serve(index, 0, Reason::kService, Means::kVictims);
    }
}

// Those that run at less than they asked for, as far as those that received more can give.
void Planner::State::grow_by_service(std::span<const std::uint32_t> jobs, std::uint32_t level) {
    const Mode mode{.service = true, .shrink_level = level + 1, .yield_level = level + 1};
    for (const std::uint32_t index : jobs) {
        if (working_[index].action != kNobody || !may_grow(index))
            continue;
        if (mode_ != mode)
            set_mode(mode);
        grow(index, Reason::kService, Means::kVictims);
    }
}

// Whether anything was found to do. What a larger size left behind may let another job in.
bool Planner::State::fill() {
    if (room_.idle() == 0)
        return false;
    const bool started = start_into_idle();
    const bool grown = grow_into_idle();
    return started || grown;
}

bool Planner::State::start_into_idle() {
    bool any = false;
    for (const std::uint32_t index : by_service_) {
        if (room_.idle() == 0)
            break;
        if (working_[index].decided || working_[index].running)
            continue;
        for (std::uint32_t size = 0; size < snapshot_->jobs[index].sizes; ++size) {
            if (serve(index, size, Reason::kIdle, Means::kIdle)) {
                any = true;
                break;
            }
        }
    }
    return any;
}

// A job of which a larger size could be of use: a start of this plan, or one that runs and may be interrupted
// for it.
bool Planner::State::may_grow(std::uint32_t index) const {
    const Working &working = working_[index];
    const Job &job = snapshot_->jobs[index];
    if (working.action != kNobody)
        return plan_.actions[working.action].size + 1 < job.sizes;
    return working.running && !working.decided && working.may_volunteer && job.size + 1 < job.sizes;
}

bool Planner::State::grow(std::uint32_t index, Reason reason, Means means) {
    const Working &working = working_[index];
    const Job &job = snapshot_->jobs[index];
    const bool starts = working.action != kNobody;
    const std::uint32_t has = starts ? plan_.actions[working.action].size : job.size;
    for (std::uint32_t size = job.sizes; size > has + 1; --size) {
        if (starts ? enlarge(index, size - 1) : serve(index, size - 1, reason, means))
            return true;
    }
    return false;
}

bool Planner::State::grow_into_idle() {
    bool any = false;
    for (const std::uint32_t index : by_service_) {
        if (room_.idle() == 0)
            break;
        if (may_grow(index) && grow(index, Reason::kIdle, Means::kIdle))
            any = true;
    }
    return any;
}

void Planner::State::note_waits() {
    for (std::uint32_t index = 0; index < working_.size(); ++index) {
        const Working &working = working_[index];
        const Job &job = snapshot_->jobs[index];
        if (working.decided || (working.running && (working.need == kNobody || job.size >= working.need)))
            continue;
        const auto fits_when_empty = [&, this](const Size &size) {
            return empty_capacity_.of(job.kinds, block_index_[size.block]) >= size.gpus / size.block;
        };
        const bool too_large =
            !working.running && std::ranges::none_of(snapshot_->sizes_of(job), fits_when_empty);
        plan_.waits.push_back({.job = index,
                               .obstacle = too_large ? Obstacle::kTooLarge : Obstacle::kNoRoom,
                               .shortfall = working.shortfall});
    }
}

bool Planner::State::worth_growing(const Job &job, std::uint32_t size) const {
    const auto sizes = snapshot_->sizes_of(job);
    return (sizes[size].speed - sizes[job.size].speed) * rules_.payback > sizes[size].speed * job.move_cost;
}

// Whether the size fits into what is idle and what the job has.
bool Planner::State::fits_with(std::span<const Share> own, const Size &size) const {
    std::uint64_t blocks = capacity(size.block);
    for (const Share &share : own) {
        const std::uint32_t free = room_.free(share.node);
        if (room_.open(share.node))
            blocks += ((free + share.gpus) / size.block) - (free / size.block);
    }
    return blocks >= size.gpus / size.block;
}

// On the nodes that the job is on, then elsewhere; there is room.
void Planner::State::place(std::span<const Share> near, std::uint64_t count, std::uint32_t block) {
    const std::size_t first = plan_.shares.size();
    for (const Share &share : near) {
        const auto blocks =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(count, room_.free(share.node) / block));
        if (blocks == 0)
            continue;
        plan_.shares.push_back({.node = share.node, .gpus = blocks * block});
        room_.occupy(share.node, blocks * block);
        count -= blocks;
    }
    room_.take(count, block, kinds_, plan_.shares);
    for (std::size_t at = first; at < plan_.shares.size(); ++at)
        occupied(plan_.shares[at].node, plan_.shares[at].gpus);
}

bool Planner::State::make_room(std::uint32_t index, std::uint64_t count, std::uint32_t block, Reason &reason,
                               Means means) {
    if (capacity(block) >= count) {
        if (reason == Reason::kService)
            reason = Reason::kIdle;
        return true;
    }
    return means == Means::kVictims && (defragment(index, count, block) || take_room(count, block));
}

bool Planner::State::serve(std::uint32_t index, std::uint32_t size, Reason reason, Means means) {
    const Job &job = snapshot_->jobs[index];
    const Size &wanted = snapshot_->sizes_of(job)[size];
    const std::uint64_t count = wanted.gpus / wanted.block;
    kinds_ = job.kinds;
    if (empty_capacity_.of(kinds_, block_index_[wanted.block]) < count)
        return false;
    const auto own = snapshot_->shares_of(job);
    if (means == Means::kIdle && !fits_with(own, wanted))
        return false;
    const bool running = working_[index].running;
    if (running && reason != Reason::kDrain && !worth_growing(job, size))
        return false;
    gain_ = wanted.gpus - std::min(wanted.gpus, working_[index].gpus);
    if (running) {
        withdraw(index);
        for (const Share &share : own)
            release(share.node, share.gpus);
    }
    if (!make_room(index, count, wanted.block, reason, means)) {
        for (const Share &share : own)
            occupy(share.node, share.gpus);
        if (running)
            offer_again(index);
        return false;
    }
    const std::size_t first_share = plan_.shares.size();
    place(own, count, wanted.block);
    ActionKind kind = running ? ActionKind::kGrow : ActionKind::kStart;
    if (reason == Reason::kDrain)
        kind = ActionKind::kMigrate;
    commit(index, size, kind, reason, first_share);
    return true;
}

// Writes down what serving the job took, and the job's own action.
void Planner::State::commit(std::uint32_t index, std::uint32_t size, ActionKind kind, Reason reason,
                            std::size_t first_share) {
    const std::size_t shares = plan_.shares.size() - first_share;
    for (const Trial &trial : trial_) {
        Action action{.kind = ActionKind::kYield,
                      .reason = reason,
                      .job = trial.job,
                      .beneficiary = index,
                      .size = 0,
                      .first_share = static_cast<std::uint32_t>(plan_.shares.size()),
                      .shares = 0,
                      .shortfall = working_[index].shortfall};
        const Job &job = snapshot_->jobs[trial.job];
        if (trial.migrant) {
            action.kind = ActionKind::kMigrate;
            action.reason = Reason::kDefragment;
            action.size = job.size;
            action.first_share = trial.first_share;
            action.shares = trial.shares;
        } else if (trial.to != kNobody) {
            action.kind = ActionKind::kShrink;
            action.size = trial.to;
            each_release(trial.job, trial.to, [this](std::uint32_t share, std::uint32_t gpus) {
                const Share &had = snapshot_->shares[share];
                if (had.gpus > gpus)
                    plan_.shares.push_back({.node = had.node, .gpus = had.gpus - gpus});
            });
            action.shares = static_cast<std::uint32_t>(plan_.shares.size()) - action.first_share;
        }
        plan_.actions.push_back(action);
    }
    relocated_ = relocated_ || kind != ActionKind::kStart || std::ranges::any_of(trial_, &Trial::migrant);
    trial_.clear();
    working_[index].decided = true;
    if (kind == ActionKind::kStart)
        working_[index].action = static_cast<std::uint32_t>(plan_.actions.size());
    plan_.actions.push_back({.kind = kind,
                             .reason = reason,
                             .job = index,
                             .beneficiary = kNobody,
                             .size = size,
                             .first_share = static_cast<std::uint32_t>(first_share),
                             .shares = static_cast<std::uint32_t>(shares),
                             .shortfall = working_[index].shortfall});
}

// A start of this plan at a larger size. It moves to the end of the order: what it gets now may be free only
// then.
bool Planner::State::enlarge(std::uint32_t index, std::uint32_t size) {
    const Action start = plan_.actions[working_[index].action];
    const Size &wanted = snapshot_->sizes_of(snapshot_->jobs[index])[size];
    kinds_ = snapshot_->jobs[index].kinds;
    if (!fits_with(plan_.shares_of(start), wanted))
        return false;
    own_.assign(plan_.shares_of(start).begin(), plan_.shares_of(start).end());
    for (const Share &share : own_)
        release(share.node, share.gpus);
    plan_.actions[working_[index].action].job = kNobody;
    relocated_ = true;
    const std::size_t first_share = plan_.shares.size();
    place(own_, wanted.gpus / wanted.block, wanted.block);
    commit(index, size, ActionKind::kStart, start.reason, first_share);
    return true;
}

Planner::Planner(const Rules &rules) : state_(std::make_unique<State>(rules)) {}
Planner::~Planner() = default;
Planner::Planner(Planner &&) noexcept = default;
Planner &Planner::operator=(Planner &&) noexcept = default;

const Plan &Planner::plan(const Snapshot &snapshot) { return state_->make(snapshot); }
const Rules &Planner::rules() const { return state_->rules(); }

Plan plan(const Snapshot &snapshot, const Rules &rules) { return Planner(rules).plan(snapshot); }

} // namespace singularity::policy
