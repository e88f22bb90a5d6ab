// SPDX-License-Identifier: GPL-2.0-or-later
#include "elastic_fair.hpp"

#include "world.hpp"

#include <algorithm>
#include <tuple>

namespace singularity::simulator {
namespace {

// How many waiting jobs behind one that does not fit are tried.
constexpr std::size_t kDepth = 500;

// A part of a placement with so many GPUs, in blocks; the nodes that give most are kept. Nothing if its
// blocks do not add up.
Placement part_of(const Placement &placement, std::int32_t gpus, std::int32_t block) {
    Placement part;
    Placement order = placement;
    std::ranges::sort(order, [](const Share &a, const Share &b) {
        return std::pair(-a.gpus, a.node) < std::pair(-b.gpus, b.node);
    });
    for (const Share &share : order) {
        const std::int32_t taken = std::min(gpus, share.gpus / block * block);
        if (taken > 0)
            part.push_back({share.node, taken});
        gpus -= taken;
    }
    return gpus == 0 ? part : Placement{};
}

// Growing costs a pause: it must be won back within this time.
constexpr Time kPayback = Time{15} * 60 * kSecond;

bool can_move(const World &world, const Job &job) { return job.ready <= world.now(); }

} // namespace

void ElasticFair::waits(const World &world, JobIndex job) { queue_.insert({world.job(job).submit, job}); }

void ElasticFair::left(const World & /*world*/, JobIndex job) { running_.erase(job); }

// At the largest size that fits.
bool ElasticFair::start(World &world, JobIndex index) {
    const Job &job = world.job(index);
    auto room = static_cast<std::int32_t>(std::min<std::int64_t>(world.pool().free(), job.demand));
    for (std::int32_t size = Costs::useful_size(job.demand, room, job.minimum);
         size >= job.minimum && size > 0; size = Costs::useful_size(job.demand, size - 1, job.minimum)) {
        if (const auto placement = world.pool().find(size)) {
            world.start(index, *placement);
            running_.insert(index);
            return true;
        }
    }
    return false;
}

// The fastest jobs with most GPUs go to their next smaller size until the least size of the job fits.
bool ElasticFair::shrink_for(World &world, JobIndex index) {
    const std::int32_t wanted = world.job(index).minimum;
    std::vector<std::tuple<double, std::int32_t, JobIndex>> candidates;
    std::int64_t possible = world.pool().free();
    for (const JobIndex running : running_) {
        const Job &job = world.job(running);
        if (!can_move(world, job) || job.gpus <= job.minimum)
            continue;
        candidates.emplace_back(-job.speed, -job.gpus, running);
        possible += job.gpus - job.minimum;
    }
    if (possible < wanted)
        return false;
    std::ranges::sort(candidates);
    for (const auto &[speed, gpus, running] : candidates) {
        if (world.pool().fits(wanted))
            return true;
        const Job &job = world.job(running);
        const std::int32_t size = Costs::useful_size(job.demand, job.gpus - 1, job.minimum);
        const Placement part =
            size > 0 ? part_of(job.placement, size, world.pool().block_of(size)) : Placement{};
        if (!part.empty())
            world.move(running, part);
    }
    return world.pool().fits(wanted);
}

void ElasticFair::grow(World &world) {
    if (world.pool().free() == 0)
        return;
    std::vector<std::tuple<double, Time, JobIndex>> slow;
    for (const JobIndex running : running_) {
        const Job &job = world.job(running);
        if (job.gpus < job.demand && can_move(world, job))
            slow.emplace_back(job.speed, job.submit, running);
    }
    std::ranges::sort(slow);
    for (const auto &[speed, submit, running] : slow) {
        const Job &job = world.job(running);
        // As far as the idle GPUs go, beside those it has; else in one piece elsewhere.
        const auto room =
            static_cast<std::int32_t>(std::min<std::int64_t>(world.pool().free() + job.gpus, job.demand));
        for (std::int32_t size = Costs::useful_size(job.demand, room, job.minimum); size > job.gpus;
             size = Costs::useful_size(job.demand, size - 1, job.minimum)) {
            const double faster = world.costs().speed(job.demand, size);
            const auto cost = static_cast<double>(world.costs().checkpoint(job.demand, job.gpus) +
                                                  world.costs().restore(job.demand, size));
            const auto rest = std::min(static_cast<double>(kPayback), world.left(running) / faster);
            if ((faster - job.speed) * rest <= faster * cost)
                continue;
            if (const auto placement = world.pool().find_with(size, job.placement)) {
                world.move(running, *placement);
                break;
            }
        }
        if (world.pool().free() == 0)
            return;
    }
}

Time ElasticFair::plan(World &world) {
    std::size_t tried = 0;
    bool may_shrink = true;
    for (auto at = queue_.begin(); at != queue_.end() && tried < kDepth;) {
        const JobIndex job = at->second;
        if (start(world, job) || (may_shrink && shrink_for(world, job) && start(world, job))) {
            at = queue_.erase(at);
        } else {
            may_shrink =
                false; // the first that cannot be helped is next in line; others may only use what is idle
            if (world.pool().free() == 0)
                break;
            ++at;
            ++tried;
        }
    }
    grow(world);
    return queue_.empty() ? kNever : world.now() + world.description().planning.longest.count();
}

} // namespace singularity::simulator
