// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_like.hpp"

#include "what_if.hpp"
#include "world.hpp"

#include <algorithm>

namespace singularity::simulator {

SlurmLike::Order SlurmLike::order_of(const World &world, JobIndex job) {
    return {world.job(job).tier, world.job(job).submit, job};
}

void SlurmLike::waits(const World &world, JobIndex job) { queue_.insert(order_of(world, job)); }

void SlurmLike::left(const World &world, JobIndex job) {
    by_limit_.erase({limits_[job], job});
    const std::size_t tier = index_of(world.job(job).tier);
    running_[tier].erase(job);
    held_[tier] -= world.job(job).demand;
}

Time SlurmLike::limit_from(const World &world, JobIndex job, Time start) {
    const double factor = world.description().slurm.time_limit_factor;
    return start + static_cast<Time>(world.left(job) * factor);
}

bool SlurmLike::start(World &world, JobIndex job) {
    const auto placement = world.pool().find(world.job(job).demand);
    if (!placement)
        return false;
    limits_.resize(world.jobs().size());
    limits_[job] = limit_from(world, job, world.now());
    by_limit_.insert({limits_[job], job});
    const std::size_t tier = index_of(world.job(job).tier);
    running_[tier].insert(job);
    held_[tier] += world.job(job).demand;
    world.start(job, *placement);
    queue_.erase(order_of(world, job));
    return true;
}

// Lower tiers first, in each the job that started last. All or nothing, and only jobs whose GPUs help.
bool SlurmLike::preempt_for(World &world, JobIndex index) {
    const Job &wanted = world.job(index);
    std::int64_t possible = world.pool().free();
    for (std::size_t tier = index_of(wanted.tier) + 1; tier < kTiers; ++tier)
        possible += held_[tier];
    if (possible < wanted.demand)
        return false;
    WhatIf room(world.pool(), wanted.demand);
    for (std::size_t tier = kTiers; tier-- > index_of(wanted.tier) + 1 && !room.fits();) {
        std::vector<std::pair<Time, JobIndex>> candidates;
        for (const JobIndex running : running_[tier])
            candidates.emplace_back(-world.job(running).ready, running);
        std::ranges::sort(candidates);
        for (const auto &[start, victim] : candidates) {
            if (room.fits())
                break;
            room.add(victim, world.job(victim).placement);
        }
    }
    if (!room.fits())
        return false;
    for (const JobIndex victim : room.victims()) {
        left(world, victim);
        world.kill(victim);
        waits(world, victim);
    }
    return true;
}

SlurmLike::Reservation SlurmLike::reserve(const World &world, JobIndex head) const {
    const std::int64_t wanted = world.job(head).demand;
    std::int64_t free = world.pool().free();
    Time when = world.now();
    for (const auto &[limit, job] : by_limit_) {
        if (free >= wanted)
            break;
        free += world.job(job).gpus;
        when = std::max(limit, world.now());
    }
    // Enough GPUs but not in one piece, or not enough nodes up: nobody can say when.
    return {free >= wanted ? when : kNever, std::max<std::int64_t>(0, free - wanted)};
}

Time SlurmLike::plan(World &world) {
    const auto depth = static_cast<std::size_t>(world.description().slurm.backfill_depth);
    bool blocked = false;
    Reservation reservation{};
    std::size_t tried = 0;
    for (auto at = queue_.begin(); at != queue_.end();) {
        const Order order = *at;
        if (!blocked) {
            if (start(world, order.job) || (preempt_for(world, order.job) && start(world, order.job))) {
                at = queue_.upper_bound(order);
                continue;
            }
            blocked = true;
            reservation = reserve(world, order.job);
            at = queue_.upper_bound(order);
            continue;
        }
        ++at;
        if (world.pool().free() == 0 || ++tried > depth)
            break;
        const Job &job = world.job(order.job);
        const bool ends_before = limit_from(world, order.job, world.now()) <= reservation.when;
        if ((ends_before || job.demand <= reservation.spare) && start(world, order.job)) {
            if (!ends_before)
                reservation.spare -= job.demand;
        }
    }
    return kNever;
}

} // namespace singularity::simulator
