// SPDX-License-Identifier: GPL-2.0-or-later
#include "world.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace singularity::simulator {
namespace {

constexpr std::size_t kSeriesSteps = 600;

Tier drawn_tier(std::int64_t id, const Shares &mix, std::uint64_t seed) {
    const double u = unit_interval(mixed(seed + mixed(static_cast<std::uint64_t>(id))));
    if (u < mix[0])
        return Tier::kPremium;
    return u < mix[0] + mix[1] ? Tier::kStandard : Tier::kBasic;
}

std::int32_t gpus_of(const Placement &placement) {
    std::int32_t gpus = 0;
    for (const Share &share : placement)
        gpus += share.gpus;
    return gpus;
}

bool drawn_elastic(std::int64_t id, double share, std::uint64_t seed) {
    return unit_interval(mixed(seed + 1 + mixed(~static_cast<std::uint64_t>(id)))) < share;
}

} // namespace

// Without elasticity: all that was asked for.
std::int32_t Scheduler::least_of(const Job &job) const { return job.demand; }

std::int32_t nodes_for(const Description &description, std::span<const TraceJob> trace) {
    if (description.cluster.nodes > 0)
        return static_cast<std::int32_t>(description.cluster.nodes);
    const double gpus =
        description.cluster.share_of_peak * static_cast<double>(peak_demand({trace.begin(), trace.end()}));
    const double nodes = std::ceil(gpus / static_cast<double>(description.cluster.gpus_per_node));
    return static_cast<std::int32_t>(std::clamp(nodes, 1.0, 1e6));
}

World::World(const Description &description, std::span<const TraceJob> trace, std::uint64_t seed)
    : description_(description), costs_(description),
      pool_(nodes_for(description, trace), static_cast<std::int32_t>(description.cluster.gpus_per_node)),
      accounting_(pool_.up(), trace.empty() ? kSecond : trace.back().submit + kSecond, kSeriesSteps),
      failures_(pool_.nodes(), description.failures.mean_time_between.count(), seed), jobs_(trace.size()),
      on_node_(static_cast<std::size_t>(pool_.nodes())) {
    for (std::size_t i = 0; i < trace.size(); ++i) {
        const TraceJob &from = trace[i];
        Job &job = jobs_[i];
        job.id = from.id;
        job.submit = from.submit;
        job.duration = from.duration;
        job.demand = from.gpus;
        job.tier = from.tier.value_or(drawn_tier(from.id, description.tiers.mix, seed));
        job.minimum =
            drawn_elastic(from.id, description.elastic.share, seed) ? costs_.minimum(from.gpus) : from.gpus;
        job.left = job.saved_left = static_cast<double>(from.duration);
    }
    for (std::int32_t node = 0; node < pool_.nodes(); ++node) {
        if (const Time when = failures_.next(node); when != kNever)
            push(when, EventKind::kFail, static_cast<std::uint32_t>(node));
    }
    count();
}

void World::push(Time when, EventKind kind, std::uint32_t subject, std::uint32_t generation) {
    events_.push({when, sequence_++, kind, subject, generation});
}

void World::count() { accounting_.set(now_, pool_.up() - pool_.free(), pool_.up(), demand_); }

void World::settle(Job &job) const {
    if (job.state == JobState::kRunning) {
        const auto total = static_cast<double>(now_ - job.since);
        const auto runs = static_cast<double>(std::max<Time>(0, now_ - std::max(job.ready, job.since)));
        const double work = std::min(job.left, runs * job.speed);
        const double needed = work * job.demand;
        job.left -= work;
        job.held += total * job.gpus;
        job.useful += needed;
        job.lost_moving += (total - runs) * job.gpus;
        job.lost_splicing += runs * job.gpus - needed;
        job.running_time += now_ - job.since;
        // Checkpoints that were due while it ran.
        const Time interval = costs_.checkpoint_interval();
        if (const Time since = std::max(job.saved_at, job.ready); now_ - since >= interval) {
            const Time last = since + ((now_ - since) / interval * interval);
            job.saved_left = job.left + (static_cast<double>(now_ - last) * job.speed);
            job.saved_at = last;
            job.has_image = true;
        }
    }
    job.since = now_;
}

double World::left(JobIndex index) const {
    const Job &job = jobs_[index];
    if (job.state != JobState::kRunning)
        return job.left;
    const Time runs = std::max<Time>(0, now_ - std::max(job.ready, job.since));
    return std::max(0.0, job.left - (static_cast<double>(runs) * job.speed));
}

double World::held(JobIndex index) const {
    const Job &job = jobs_[index];
    return job.held +
           (job.state == JobState::kRunning ? static_cast<double>(now_ - job.since) * job.gpus : 0);
}

Time World::since_checkpoint(JobIndex index) const {
    const Job &job = jobs_[index];
    const Time since = std::max(job.saved_at, job.ready);
    return std::max<Time>(0, now_ - since) % costs_.checkpoint_interval();
}

void World::begin(JobIndex index, const Placement &placement, Time ready) {
    Job &job = jobs_[index];
    job.state = JobState::kRunning;
    job.placement = placement;
    job.gpus = gpus_of(placement);
    for (const Share &share : placement)
        on_node_[static_cast<std::size_t>(share.node)].push_back(index);
    job.speed = costs_.speed(job.demand, job.gpus);
    job.ready = ready;
    job.saved_at = std::max(job.saved_at, now_);
    const Time end = ready + static_cast<Time>(std::ceil(job.left / job.speed));
    push(end, EventKind::kEnd, index, ++job.generation);
}

void World::leave(JobIndex index, Time ready) {
    Job &job = jobs_[index];
    settle(job);
    for (const Share &share : job.placement) {
        auto &here = on_node_[static_cast<std::size_t>(share.node)];
        here.erase(std::ranges::find(here, index));
    }
    pool_.release(job.placement, now_, ready);
    job.placement.clear();
    job.gpus = 0;
    job.speed = 0;
    job.state = JobState::kWaiting;
    ++job.generation;
}

Time World::save(JobIndex index) {
    Job &job = jobs_[index];
    // One that is not yet running again is in the store as it was.
    const Time saved =
        job.ready > now_ ? std::max(now_, job.available) : now_ + costs_.checkpoint(job.demand, job.gpus);
    leave(index, saved);
    ++job.moves;
    job.has_image = job.has_image || job.left < static_cast<double>(job.duration);
    job.saved_left = job.left;
    job.saved_at = saved;
    return saved;
}

Time World::restore_time(const Job &job, const Placement &placement) const {
    return job.has_image ? costs_.restore(job.demand, gpus_of(placement)) : 0;
}

void World::start(JobIndex index, const Placement &placement) {
    Job &job = jobs_[index];
    scheduler_->changes(*this, index);
    job.since = now_;
    job.first_start = std::min(job.first_start, now_);
    const Time ready = std::max(pool_.take(placement, now_), job.available);
    begin(index, placement, ready + restore_time(job, placement));
    count();
}

void World::move(JobIndex index, const Placement &placement) {
    Job &job = jobs_[index];
    scheduler_->changes(*this, index);
    const Time saved = save(index);
    const Time ready = std::max(pool_.take(placement, now_), saved);
    begin(index, placement, ready + restore_time(job, placement));
    count();
}

void World::yield(JobIndex index) {
    Job &job = jobs_[index];
    scheduler_->changes(*this, index);
    job.available = save(index);
    count();
}

void World::lose(Job &job) const {
    const double again = job.saved_left - job.left;
    job.lost_again += again * job.demand;
    job.useful -= again * job.demand;
    job.left = job.saved_left;
    job.available = now_;
}

void World::kill(JobIndex index) {
    scheduler_->changes(*this, index);
    leave(index, now_);
    lose(jobs_[index]);
    ++jobs_[index].kills;
    count();
}

void World::submit(JobIndex index) {
    Job &job = jobs_[index];
    if (!pool_.fits_empty(scheduler_->least_of(job))) {
        job.state = JobState::kRejected;
        ++done_;
        return;
    }
    job.state = JobState::kWaiting;
    job.since = job.available = job.saved_at = now_;
    demand_ += job.demand;
    scheduler_->waits(*this, index);
}

void World::fail(std::int32_t node) {
    ++failed_nodes_;
    pool_.fail(node, now_);
    const std::vector<JobIndex> lost = on_node_[static_cast<std::size_t>(node)];
    for (const JobIndex index : lost) {
        scheduler_->changes(*this, index);
        leave(index, now_);
        lose(jobs_[index]);
        ++jobs_[index].failures;
        scheduler_->left(*this, index);
        scheduler_->waits(*this, index);
    }
    push(now_ + description_.failures.repair.count(), EventKind::kRepair, static_cast<std::uint32_t>(node));
}

void World::handle(const Event &event) {
    if (event.kind == EventKind::kFail) {
        fail(static_cast<std::int32_t>(event.subject));
    } else if (event.kind == EventKind::kRepair) {
        const auto node = static_cast<std::int32_t>(event.subject);
        pool_.repair(node);
        push(now_ + failures_.next(node), EventKind::kFail, event.subject);
    } else {
        scheduler_->changes(*this, event.subject);
        Job &job = jobs_[event.subject];
        leave(event.subject, now_);
        job.useful += job.left * job.demand; // what rounding up to a millisecond left over
        job.lost_splicing -= job.left * job.demand;
        job.left = 0;
        job.state = JobState::kFinished;
        job.end = now_;
        demand_ -= job.demand;
        ++done_;
        scheduler_->left(*this, event.subject);
    }
}

void World::run(Scheduler &scheduler, const std::function<void(double)> &progress) {
    scheduler_ = &scheduler;
    const Time period = std::max<Time>(1, description_.planning.period.count());
    Time last_plan = -period;
    Time wake = kNever;
    bool dirty = false;
    Time last_change = 0; // of what a scheduler could decide on
    std::size_t told = 0;
    while (done_ < jobs_.size()) {
        Time when = kNever;
        if (next_ < jobs_.size())
            when = std::min(when, jobs_[next_].submit);
        if (!events_.empty())
            when = std::min(when, events_.top().when);
        if (dirty)
            when = std::min(when, std::max(now_, last_plan + period));
        if (wake != kNever)
            when = std::min(when, std::max(wake, last_plan + period));
        // Nothing is submitted or running any more and nothing changes but nodes: what waits will wait for
        // ever.
        const bool stuck = next_ == jobs_.size() && pool_.free() == pool_.up() && !dirty &&
                           pool_.up() == accounting_.capacity() && now_ - last_change > 24 * kHour;
        if (when == kNever || stuck)
            break;
        now_ = when;
        for (; next_ < jobs_.size() && jobs_[next_].submit <= now_; ++next_, dirty = true)
            submit(static_cast<JobIndex>(next_));
        while (!events_.empty() && events_.top().when <= now_) {
            const Event event = events_.top();
            events_.pop();
            if (event.kind == EventKind::kEnd && jobs_[event.subject].generation != event.generation)
                continue;
            handle(event);
            dirty = true;
        }
        count();
        if ((dirty || wake <= now_) && now_ >= last_plan + period) {
            const std::int64_t free = pool_.free();
            dirty = false;
            last_plan = now_;
            wake = scheduler.plan(*this);
            ++plans_;
            if (pool_.free() != free)
                last_change = now_;
        }
        if (progress && done_ - told > jobs_.size() / 1000) {
            told = done_;
            progress(static_cast<double>(done_) / static_cast<double>(jobs_.size()));
        }
    }
    count();
}

} // namespace singularity::simulator
