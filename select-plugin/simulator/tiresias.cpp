// SPDX-License-Identifier: GPL-2.0-or-later
#include "tiresias.hpp"

#include "what_if.hpp"
#include "world.hpp"

#include <algorithm>
#include <cmath>

namespace singularity::simulator {

std::size_t Tiresias::queue_of(const World &world, JobIndex job) {
    const auto &thresholds = world.description().tiresias.queue_thresholds;
    const double attained = world.held(job) / static_cast<double>(kSecond);
    return static_cast<std::size_t>(std::ranges::upper_bound(thresholds, attained) - thresholds.begin());
}

void Tiresias::waits(const World &world, JobIndex job) {
    queues_.resize(world.jobs().size());
    queues_[job] = queue_of(world, job);
    jobs_.insert({queues_[job], world.job(job).submit, job});
}

void Tiresias::left(const World &world, JobIndex job) {
    jobs_.erase({queues_[job], world.job(job).submit, job});
    running_.erase(job);
}

Time Tiresias::demote(const World &world) {
    const auto &thresholds = world.description().tiresias.queue_thresholds;
    Time next = kNever;
    for (const JobIndex index : running_) {
        std::size_t &queue = queues_[index];
        if (queue == thresholds.size())
            continue;
        const Job &job = world.job(index);
        if (const std::size_t now = queue_of(world, index); now != queue) {
            jobs_.erase({queue, job.submit, index});
            queue = now;
            jobs_.insert({queue, job.submit, index});
        }
        if (queue < thresholds.size()) {
            const double missing = (thresholds[queue] * kSecond) - world.held(index);
            next = std::min(next, world.now() + 1 + static_cast<Time>(std::ceil(missing / job.gpus)));
        }
    }
    return next;
}

// Stops jobs from the end of the order, only those whose GPUs help; nobody if it cannot be done.
bool Tiresias::make_room(World &world, JobIndex job, const std::set<JobIndex> &stay) {
    WhatIf room(world.pool(), world.job(job).demand);
    const Order own{queues_[job], world.job(job).submit, job};
    for (auto at = jobs_.rbegin(); at != jobs_.rend() && !room.fits() && own < *at; ++at) {
        const Job &candidate = world.job(at->job);
        if (candidate.state == JobState::kRunning && !stay.contains(at->job))
            room.add(at->job, candidate.placement);
    }
    if (!room.fits())
        return false;
    for (const JobIndex victim : room.victims()) {
        world.yield(victim);
        running_.erase(victim);
    }
    return true;
}

Time Tiresias::plan(World &world) {
    const Time next = demote(world);
    // Who should run, by count: in the order of the queues, whoever fits in what those before left.
    std::int64_t room = world.pool().up();
    std::vector<JobIndex> chosen;
    std::set<JobIndex> stay;
    for (const Order &order : jobs_) {
        if (room == 0)
            break;
        const Job &job = world.job(order.job);
        if (job.demand > room)
            continue;
        room -= job.demand;
        if (job.state == JobState::kRunning)
            stay.insert(order.job);
        else
            chosen.push_back(order.job);
    }
    for (const JobIndex job : chosen) {
        if (!make_room(world, job, stay))
            continue;
        if (const auto placement = world.pool().find(world.job(job).demand)) {
            world.start(job, *placement);
            running_.insert(job);
        }
    }
    return next;
}

} // namespace singularity::simulator
