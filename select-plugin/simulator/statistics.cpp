// SPDX-License-Identifier: GPL-2.0-or-later
#include "statistics.hpp"

#include "world.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace singularity::simulator {
namespace {

constexpr double kMillisecondsPerHour = 3.6e6;

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Collects the jobs of one tier, or all.
class Collector {
  public:
    Collector(const std::array<double, kTiers> &guarantees, Time window)
        : guarantees_(guarantees), window_(window) {}

    void add(const Job &job) {
        const double guarantee = guarantees_[index_of(job.tier)];
        const auto real = static_cast<double>(job.end - job.submit);
        const auto ideal = static_cast<double>(job.duration);
        const double fraction = std::min(1.0, ideal / std::max(real, 1.0));
        const double work = ideal * job.demand;
        const bool met = fraction >= guarantee;
        const double judged = std::max(real, static_cast<double>(window_));
        met_ += met ? 1 : 0;
        met_work_ += met ? work : 0;
        met_window_ += real - ideal <= (1 - guarantee) * judged ? 1 : 0;
        work_ += work;
        sum_ += fraction;
        queueing_.push_back(static_cast<double>(job.first_start - job.submit) / kSecond);
        completion_.push_back(real / kSecond);
        out_.fractions.push_back(fraction);
        hours_ += static_cast<double>(job.running_time) / kMillisecondsPerHour;
        moves_ += job.moves;
        kills_ += job.kills;
    }

    TierStatistics finish() {
        out_.jobs = out_.fractions.size();
        const auto count = static_cast<double>(out_.jobs);
        out_.met = ratio(met_, count);
        out_.met_by_work = ratio(met_work_, work_);
        out_.met_in_window = ratio(met_window_, count);
        out_.mean_fraction = ratio(sum_, count);
        out_.queueing = distribution_of(queueing_);
        out_.completion = distribution_of(completion_);
        out_.moves_per_job_hour = ratio(moves_, hours_);
        out_.kills_per_job_hour = ratio(kills_, hours_);
        std::ranges::sort(out_.fractions);
        return std::move(out_);
    }

    [[nodiscard]] const std::vector<double> &completion() const {
        return completion_;
    } // ascending after finish()

  private:
    std::array<double, kTiers> guarantees_;
    Time window_;
    TierStatistics out_;
    double met_ = 0;
    double met_work_ = 0;
    double met_window_ = 0;
    double work_ = 0;
    double sum_ = 0;
    double hours_ = 0;
    double moves_ = 0;
    double kills_ = 0;
    std::vector<double> queueing_;
    std::vector<double> completion_;
};

} // namespace

Distribution distribution_of(std::vector<double> &values) {
    if (values.empty())
        return {};
    std::ranges::sort(values);
    const auto rank = [&values](double share) {
        const auto at = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
        return values[std::max<std::size_t>(at, 1) - 1];
    };
    return {std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
            rank(0.5), rank(0.99)};
}

Statistics statistics_of(const World &world, std::string policy,
                         const std::array<double, kTiers> &guarantees) {
    Statistics out;
    out.policy = std::move(policy);
    out.nodes = world.pool().nodes();
    out.gpus = world.accounting().capacity();
    const Time window = world.description().tiers.window.count();
    std::vector<Collector> tiers(kTiers, Collector(guarantees, window));
    Collector all(guarantees, window);
    GpuTime &time = out.time;
    for (const Job &job : world.jobs()) {
        out.finished += job.state == JobState::kFinished ? 1 : 0;
        out.rejected += job.state == JobState::kRejected ? 1 : 0;
        out.unfinished += job.state != JobState::kFinished && job.state != JobState::kRejected ? 1 : 0;
        time.useful += job.useful / kMillisecondsPerHour;
        time.lost_moving += job.lost_moving / kMillisecondsPerHour;
        time.lost_splicing += job.lost_splicing / kMillisecondsPerHour;
        time.lost_again += job.lost_again / kMillisecondsPerHour;
        if (job.state != JobState::kFinished)
            continue;
        tiers[index_of(job.tier)].add(job);
        all.add(job);
    }
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
        out.tiers[tier] = tiers[tier].finish();
        out.tiers[tier].guarantee = guarantees[tier];
    }
    out.all = all.finish();
    out.completions = all.completion();
    const Accounting &accounting = world.accounting();
    time.total = accounting.total() / kMillisecondsPerHour;
    time.down = accounting.down() / kMillisecondsPerHour;
    time.held = accounting.held() / kMillisecondsPerHour;
    time.releasing = world.pool().releasing() / kMillisecondsPerHour;
    time.idle = time.total - time.down - time.held - time.releasing;
    out.utilisation = ratio(accounting.held_within(), accounting.up_within());
    out.utilisation_of_bound = ratio(accounting.held_within(), accounting.bound_within());
    out.useful_share = ratio(time.useful, time.held);
    out.makespan_hours = static_cast<double>(world.now()) / kMillisecondsPerHour;
    out.node_failures = world.failures();
    out.plans = world.plans();
    out.step_hours = static_cast<double>(accounting.step()) / kMillisecondsPerHour;
    out.held_series = accounting.held_series();
    out.demand_series = accounting.demand_series();
    out.up_series = accounting.up_series();
    return out;
}

} // namespace singularity::simulator
