// SPDX-License-Identifier: GPL-2.0-or-later
// GPU time of the whole cluster, counted apart from the jobs' own accounts so that one checks the other.
#pragma once

#include "units.hpp"

#include <cstdint>
#include <vector>

namespace singularity::simulator {

// What is held now, over the whole simulation and as a series of means over equal steps of time.
class Accounting {
  public:
    // The series covers [0, end).
    Accounting(std::int64_t capacity, Time end, std::size_t steps)
        : capacity_(capacity), step_((end / static_cast<Time>(steps)) + 1), end_(end), held_series_(steps),
          up_series_(steps), demand_series_(steps) {}

    // What is so from `now` on: GPUs held by jobs, GPUs of nodes that are up, GPUs asked for by the jobs in
    // the system.
    void set(Time now, std::int64_t held, std::int64_t up, std::int64_t demand);

    [[nodiscard]] std::int64_t capacity() const { return capacity_; }
    // GPU milliseconds until the last set().
    [[nodiscard]] double held() const { return held_; }
    [[nodiscard]] double down() const { return down_; }
    [[nodiscard]] double total() const {
        return static_cast<double>(capacity_) * static_cast<double>(since_);
    }
    // GPU milliseconds within [0, end): held, and the most that any scheduler could have had in use with the
    // same jobs in the system, that is the demand or what is up, whichever is less.
    [[nodiscard]] double held_within() const { return held_within_; }
    [[nodiscard]] double bound_within() const { return bound_within_; }
    [[nodiscard]] double up_within() const { return up_within_; }

    [[nodiscard]] Time step() const { return step_; }
    [[nodiscard]] Time end() const { return end_; }
    // Mean GPUs of each step.
    [[nodiscard]] std::vector<double> held_series() const { return means(held_series_); }
    [[nodiscard]] std::vector<double> demand_series() const { return means(demand_series_); }
    [[nodiscard]] std::vector<double> up_series() const { return means(up_series_); }

  private:
    [[nodiscard]] std::vector<double> means(const std::vector<double> &sums) const;

    std::int64_t capacity_;
    Time step_;
    Time end_;
    Time since_ = 0;
    std::int64_t held_now_ = 0;
    std::int64_t up_now_ = 0;
    std::int64_t demand_now_ = 0;
    double held_ = 0;
    double down_ = 0;
    double held_within_ = 0;
    double bound_within_ = 0;
    double up_within_ = 0;
    std::vector<double> held_series_;
    std::vector<double> up_series_;
    std::vector<double> demand_series_;
};

} // namespace singularity::simulator
