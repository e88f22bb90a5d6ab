// SPDX-License-Identifier: GPL-2.0-or-later
// Who makes room: shrinks or yields, so that a number of blocks becomes free.
//
// potential_ says for every node what would be free if everybody gave what may be taken: whether a job can be
// served at all is known without a search. Where its blocks come from is decided node by node: offers_ holds
// for every node what its next block costs, and the cheapest is taken until there are enough. In the end
// those who turn out not to be needed are spared, and those who need not shrink that far shrink less.
#include "state.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

namespace singularity::policy {
namespace {

// How many large victims in turn are looked at in vain before blocks are taken one by one.
constexpr std::uint32_t kMostLooks = 64;

} // namespace

std::uint32_t Planner::State::rank_of(const Working &victim, bool yields) {
    const auto from_basic = static_cast<std::uint32_t>(kTiers) - 1 - static_cast<std::uint32_t>(victim.tier);
    if (!yields)
        return from_basic;
    return from_basic + (victim.gives_way ? kGivingWay : kYielding);
}

bool Planner::State::in_place(const Job &job, const Size &size) const {
    std::uint32_t blocks = 0;
    for (const Share &share : snapshot_->shares_of(job))
        blocks += share.gpus / size.block;
    return blocks >= size.gpus / size.block;
}

bool Planner::State::shrinks_in(Mode mode, const Working &working) {
    return !working.decided && working.shrink_to != kNobody &&
           (!mode.service || (working.serves_service && working.level >= mode.shrink_level));
}

bool Planner::State::yields_in(Mode mode, const Working &working) {
    if (mode.service)
        return working.may_yield && working.best_effort && working.level >= mode.yield_level;
    return working.may_yield || (working.gives_way && working.tier > mode.served);
}

bool Planner::State::may_yield(const Working &working) const {
    return !working.decided && yields_in(mode_, working);
}

Planner::State::Giving Planner::State::giving_in(Mode mode, const Working &working) {
    if (working.decided)
        return Giving::kNothing;
    if (yields_in(mode, working))
        return Giving::kEverything;
    return shrinks_in(mode, working) ? Giving::kSurplus : Giving::kNothing;
}

std::uint32_t Planner::State::given(Giving giving, std::uint32_t share) const {
    switch (giving) {
    case Giving::kNothing:
        return 0;
    case Giving::kSurplus:
        return shrink_release_[share];
    case Giving::kEverything:
        return snapshot_->shares[share].gpus;
    }
    return 0;
}

void Planner::State::reset_potential() {
    mode_ = {};
    has_offers_.assign(blocks_.size(), 0);
    potential_.resize(snapshot_->nodes.size());
    potential_capacity_.reset(room_.kinds(), blocks_.size());
    is_touched_.assign(potential_.size(), 0);
    touched_.clear();
    for (std::uint32_t node = 0; node < potential_.size(); ++node) {
        potential_[node] = room_.free(node);
        for (std::uint32_t at = first_holding_[node]; at < first_holding_[node + 1] && room_.open(node); ++at)
            potential_[node] += given(giving_in(mode_, working_[holdings_[at].job]), holdings_[at].share);
        potential_capacity_.add(snapshot_->nodes[node].kind, room_.fits(potential_[node]));
    }
}

// Those who may give more or less after the change than before, and perhaps some more.
std::span<const std::uint32_t> Planner::State::victims_between(Mode before, Mode after) const {
    if (before.service != after.service || before.served != after.served)
        return victims_;
    const auto [least, most] =
        std::minmax({before.shrink_level, before.yield_level, after.shrink_level, after.yield_level});
    const std::uint32_t first = first_victim_[std::min(least, kMostLevels)];
    return std::span(victims_).subspan(first, first_victim_[std::min(most, kMostLevels)] - first);
}

void Planner::State::set_mode(Mode mode) {
    // Who may yield may shrink as well now, or no longer.
    if (mode.service != mode_.service || mode.served != mode_.served)
        has_offers_.assign(blocks_.size(), 0);
    for (const std::uint32_t job : victims_between(mode_, mode))
        change_potential(job, giving_in(mode_, working_[job]), giving_in(mode, working_[job]));
    mode_ = mode;
}

void Planner::State::change_potential(std::uint32_t job, Giving from, Giving to) {
    if (from == to)
        return;
    const Job &record = snapshot_->jobs[job];
    for (std::uint32_t share = record.first_share; share < record.first_share + record.shares; ++share) {
        const std::uint32_t node = snapshot_->shares[share].node;
        if (!room_.open(node))
            continue;
        set_potential(node, potential_[node] + given(to, share) - given(from, share));
        // More that yield are more to choose from, even where they give no more than by shrinking.
        touch(node);
    }
}

void Planner::State::touch(std::uint32_t node) {
    if (is_touched_[node] == 0) {
        is_touched_[node] = 1;
        touched_.push_back(node);
    }
}

void Planner::State::set_potential(std::uint32_t node, std::uint32_t gpus) {
    const std::uint32_t before = potential_[node];
    if (gpus == before)
        return;
    potential_[node] = gpus;
    potential_capacity_.change(snapshot_->nodes[node].kind, room_.fits(before), room_.fits(gpus));
    touch(node);
}

void Planner::State::release(std::uint32_t node, std::uint32_t gpus) {
    if (gpus == 0 || !room_.open(node))
        return;
    room_.release(node, gpus);
    set_potential(node, potential_[node] + gpus);
}

void Planner::State::occupy(std::uint32_t node, std::uint32_t gpus) {
    if (gpus == 0 || !room_.open(node))
        return;
    room_.occupy(node, gpus);
    occupied(node, gpus);
}

void Planner::State::occupied(std::uint32_t node, std::uint32_t gpus) {
    set_potential(node, potential_[node] - gpus);
}

void Planner::State::withdraw(std::uint32_t job) {
    change_potential(job, giving_in(mode_, working_[job]), Giving::kNothing);
    working_[job].decided = true;
}

void Planner::State::offer_again(std::uint32_t job) {
    working_[job].decided = false;
    change_potential(job, Giving::kNothing, giving_in(mode_, working_[job]));
}

void Planner::State::apply(Pick pick) {
    withdraw(pick.job);
    each_release(pick.job, pick.to, [this](std::uint32_t share, std::uint32_t gpus) {
        release(snapshot_->shares[share].node, gpus);
    });
}

void Planner::State::unapply(Pick pick) {
    each_release(pick.job, pick.to, [this](std::uint32_t share, std::uint32_t gpus) {
        occupy(snapshot_->shares[share].node, gpus);
    });
    offer_again(pick.job);
}

void Planner::State::undo_trial() {
    while (!trial_.empty()) {
        const Trial trial = trial_.back();
        trial_.pop_back();
        if (trial.migrant)
            move_back(trial);
        else
            unapply({.job = trial.job, .to = trial.to});
    }
}

// What the node's next block would cost, with the victims in picks_; false if there is none to be had.
bool Planner::State::offer(std::uint32_t node, std::uint32_t block, Offer &offer) {
    const std::uint32_t free = room_.free(node);
    const std::uint32_t wanted = ((free / block) + 1) * block;
    if (potential_[node] < wanted)
        return false;
    const std::uint32_t lacking = wanted - free;
    const auto holdings =
        std::span(holdings_).subspan(first_holding_[node], first_holding_[node + 1] - first_holding_[node]);

    // The lowest rank with which there is enough.
    std::array<std::uint32_t, kRanks> amounts{};
    for (const Holding &holding : holdings) {
        const Working &working = working_[holding.job];
        const std::uint32_t shrinks = may_shrink(working) ? shrink_release_[holding.share] : 0;
        amounts[rank_of(working, false)] += shrinks;
        if (may_yield(working))
            amounts[rank_of(working, true)] += snapshot_->shares[holding.share].gpus - shrinks;
    }
    std::uint32_t rank = 0;
    std::uint32_t sum = amounts[0];
    while (sum < lacking)
        sum += amounts[++rank];

    candidates_.clear();
    for (const Holding &holding : holdings) {
        const Job &job = snapshot_->jobs[holding.job];
        const Working &working = working_[holding.job];
        const bool yields = rank_of(working, true) <= rank && may_yield(working);
        const bool shrinks = !yields && rank_of(working, false) <= rank && may_shrink(working);
        std::uint32_t amount = 0;
        if (yields)
            amount = snapshot_->shares[holding.share].gpus;
        else if (shrinks)
            amount = shrink_release_[holding.share];
        if (amount == 0)
            continue;
        const std::uint32_t all =
            yields ? working.gpus : working.gpus - snapshot_->sizes_of(job)[working.shrink_to].gpus;
        candidates_.push_back({.amount = amount,
                               .waste = all - amount,
                               .stale = job.since_checkpoint,
                               .pick = {.job = holding.job, .to = yields ? kNobody : working.shrink_to}});
    }
    // The fewest: while none is enough alone, the one that gives most; the last is the one that gives least
    // too much.
    picks_.clear();
    offer = {.cost = 0, .stale = 0, .node = node};
    std::uint64_t waste = 0;
    std::uint32_t left = lacking;
    while (left > 0) {
        const auto preference = [left](const Candidate &candidate) {
            const bool enough = candidate.amount >= left;
            const std::uint32_t beyond = candidate.waste + (enough ? candidate.amount - left : 0);
            return std::tuple(!enough, enough ? 0 : kMostGpusOfNode - candidate.amount, beyond,
                              candidate.stale, candidate.pick.job);
        };
        const auto best = std::ranges::min_element(candidates_, {}, preference);
        const std::uint32_t used = std::min(left, best->amount);
        waste += best->waste + (best->amount - used);
        offer.stale = std::max(offer.stale, best->stale);
        picks_.push_back(best->pick);
        left -= used;
        *best = candidates_.back();
        candidates_.pop_back();
    }
    constexpr std::uint64_t kMostWaste = (1ULL << 40U) - 1;
    offer.cost =
        (std::uint64_t{rank} << 56U) | (std::uint64_t{picks_.size()} << 40U) | std::min(waste, kMostWaste);
    return true;
}

// On all nodes that may be used, unless they are there.
void Planner::State::find_offers(std::uint32_t index) {
    const Kinds lacking = kinds_ & ~has_offers_[index];
    if (lacking == 0)
        return;
    auto &heaps = offers_[index];
    for (std::uint32_t kind = 0; kind < room_.kinds(); ++kind) {
        if (is_among(kind, lacking))
            heaps[kind].clear();
    }
    Offer found;
    for (std::uint32_t node = 0; node < potential_.size(); ++node) {
        const std::uint32_t kind = snapshot_->nodes[node].kind;
        if (is_among(kind, lacking) && offer(node, blocks_[index], found))
            heaps[kind].push_back(found);
    }
    for (std::uint32_t kind = 0; kind < room_.kinds(); ++kind) {
        if (is_among(kind, lacking))
            std::ranges::make_heap(heaps[kind], std::greater{});
    }
    has_offers_[index] |= lacking;
}

void Planner::State::push_offer(std::uint32_t index, const Offer &offer) {
    auto &heap = offers_[index][snapshot_->nodes[offer.node].kind];
    heap.push_back(offer);
    std::ranges::push_heap(heap, std::greater{});
}

// The best of those that may be used; false if there is none.
bool Planner::State::pop_offer(std::uint32_t index, Offer &best) {
    std::vector<Offer> *from = nullptr;
    for (std::uint32_t kind = 0; kind < room_.kinds(); ++kind) {
        auto &heap = offers_[index][kind];
        if (is_among(kind, kinds_) && !heap.empty() && (from == nullptr || heap.front() < from->front()))
            from = &heap;
    }
    if (from == nullptr)
        return false;
    best = from->front();
    std::ranges::pop_heap(*from, std::greater{});
    from->pop_back();
    return true;
}

// Only what became better must be pushed: what became worse is found out when it is the best.
void Planner::State::flush_touched() {
    Offer found;
    for (const std::uint32_t node : touched_) {
        is_touched_[node] = 0;
        const std::uint32_t kind = snapshot_->nodes[node].kind;
        for (std::uint32_t index = 0; index < blocks_.size(); ++index) {
            if (is_among(kind, has_offers_[index]) && offer(node, blocks_[index], found))
                push_offer(index, found);
        }
    }
    touched_.clear();
}

// One large victim of the gangs in place of many small ones: at least half of what it gives must be of use.
bool Planner::State::take_whole_gang(std::uint64_t lacking, std::uint32_t block,
                                     std::span<const std::uint32_t> gangs, std::size_t &cursor) {
    const auto too_large = [this, lacking, block](std::uint32_t job) {
        return working_[job].gpus > lacking * block;
    };
    if (cursor < gangs.size() && too_large(gangs[cursor])) {
        const auto begin = gangs.begin() + static_cast<std::ptrdiff_t>(cursor);
        cursor =
            static_cast<std::size_t>(std::partition_point(begin, gangs.end(), too_large) - gangs.begin());
    }
    for (std::uint32_t looks = 0; looks < kMostLooks && cursor < gangs.size(); ++looks, ++cursor) {
        const std::uint32_t job = gangs[cursor];
        if (working_[job].gpus <= block)
            return false;
        if (!may_yield(working_[job]))
            continue;
        std::uint32_t gained = 0;
        for (const Share &share : snapshot_->shares_of(snapshot_->jobs[job])) {
            const std::uint32_t free = room_.free(share.node);
            if (room_.open(share.node) && is_usable(share.node))
                gained += ((free + share.gpus) / block) - (free / block);
        }
        if (std::uint64_t{2} * gained * block < working_[job].gpus)
            continue;
        apply({.job = job, .to = kNobody});
        trial_.push_back({.job = job, .to = kNobody});
        return true;
    }
    return false;
}

// Where nobody else can give anything: one of those that were to shrink yields instead. False if none may.
// rest_ has them in order, the next one last; who comes to trial_ meanwhile is in the next list.
bool Planner::State::take_the_rest() {
    const auto may_yield_too = [this](const Trial &trial) {
        return trial.to != kNobody && yields_in(mode_, working_[trial.job]);
    };
    if (rest_.empty()) {
        for (std::uint32_t at = 0; at < trial_.size(); ++at) {
            if (may_yield_too(trial_[at]))
                rest_.push_back(at);
        }
        std::ranges::sort(rest_, std::greater{}, [this](std::uint32_t at) {
            const Job &job = snapshot_->jobs[trial_[at].job];
            return std::tuple(rank_of(working_[trial_[at].job], true), job.since_checkpoint, trial_[at].job);
        });
    }
    if (rest_.empty())
        return false;
    Trial &trial = trial_[rest_.back()];
    rest_.pop_back();
    unapply({.job = trial.job, .to = trial.to});
    trial.to = kNobody;
    apply({.job = trial.job, .to = trial.to});
    return true;
}

// The most unwelcome first: who is not needed is left alone, who must not give everything gives less.
void Planner::State::spare_victims(std::uint64_t count, std::uint32_t block) {
    std::ranges::sort(trial_, {}, [this](const Trial &trial) {
        const Job &job = snapshot_->jobs[trial.job];
        const Working &working = working_[trial.job];
        return std::tuple(rank_of(working, trial.to == kNobody), job.since_checkpoint, ~working.gpus,
                          trial.job);
    });
    for (std::size_t at = trial_.size(); at > 0; --at) {
        const Pick pick{.job = trial_[at - 1].job, .to = trial_[at - 1].to};
        unapply(pick);
        if (capacity(block) >= count)
            trial_[at - 1].job = kNobody;
        else
            apply(pick);
    }
    std::erase_if(trial_, [](const Trial &trial) { return trial.job == kNobody; });
    for (Trial &trial : trial_) {
        const Job &job = snapshot_->jobs[trial.job];
        const Working &working = working_[trial.job];
        const bool gives_way = working.gives_way && trial.to == kNobody;
        std::uint32_t least = trial.to == kNobody ? working.shrink_to : trial.to + 1;
        if (gives_way) // at any size
            least = 0;
        unapply({.job = trial.job, .to = trial.to});
        std::uint32_t to = trial.to;
        const bool shrinks = gives_way || may_shrink(working);
        for (std::uint32_t size = job.size; shrinks && size > least; --size) {
            if (!in_place(job, snapshot_->sizes_of(job)[size - 1]))
                continue;
            apply({.job = trial.job, .to = size - 1});
            const bool enough = capacity(block) >= count;
            unapply({.job = trial.job, .to = size - 1});
            if (enough) {
                to = size - 1;
                break;
            }
        }
        trial.to = to;
        apply({.job = trial.job, .to = to});
    }
}

// Whether as much is won within the payback as the interruptions of the victims cost, in GPU time.
bool Planner::State::worth_its_victims() const {
    Milliseconds cost = 0;
    for (const Trial &trial : trial_)
        cost += snapshot_->jobs[trial.job].move_cost * working_[trial.job].gpus;
    return cost <= Milliseconds{gain_} * rules_.payback;
}

bool Planner::State::take_room(std::uint64_t count, std::uint32_t block) {
    const std::uint32_t index = block_index_[block];
    if (potential_capacity_.of(kinds_, index) < count)
        return false;
    find_offers(index);
    std::array<std::size_t, kRanks - kYielding> cursors{};
    rest_.clear();
    while (capacity(block) < count) {
        flush_touched();
        Offer best;
        if (!pop_offer(index, best)) {
            if (take_the_rest())
                continue;
            undo_trial();
            return false;
        }
        Offer found;
        if (!offer(best.node, block, found))
            continue;
        if (found > best) {
            push_offer(index, found);
            continue;
        }
        const std::uint64_t lacking = count - capacity(block);
        const auto rank = static_cast<std::uint32_t>(found.cost >> 56U);
        if (rank >= kYielding && lacking > 1 &&
            take_whole_gang(lacking, block, gangs_[rank - kYielding], cursors[rank - kYielding])) {
            push_offer(index, found);
            continue;
        }
        for (const Pick &pick : picks_) {
            apply(pick);
            trial_.push_back({.job = pick.job, .to = pick.to});
        }
    }
    spare_victims(count, block);
    if (mode_.service && !worth_its_victims()) {
        undo_trial();
        return false;
    }
    return true;
}

} // namespace singularity::policy
