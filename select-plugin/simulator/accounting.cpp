// SPDX-License-Identifier: GPL-2.0-or-later
#include "accounting.hpp"

#include <algorithm>

namespace singularity::simulator {

void Accounting::set(Time now, std::int64_t held, std::int64_t up, std::int64_t demand) {
    const auto length = static_cast<double>(now - since_);
    held_ += static_cast<double>(held_now_) * length;
    down_ += static_cast<double>(capacity_ - up_now_) * length;
    const Time until = std::min(now, end_);
    if (const auto inside = static_cast<double>(until - since_); inside > 0) {
        held_within_ += static_cast<double>(held_now_) * inside;
        up_within_ += static_cast<double>(up_now_) * inside;
        bound_within_ += static_cast<double>(std::max(held_now_, std::min(demand_now_, up_now_))) * inside;
        for (Time from = since_; from < until;) {
            const auto at = static_cast<std::size_t>(from / step_);
            const Time to = std::min(until, (static_cast<Time>(at) + 1) * step_);
            held_series_[at] += static_cast<double>(held_now_) * static_cast<double>(to - from);
            up_series_[at] += static_cast<double>(up_now_) * static_cast<double>(to - from);
            demand_series_[at] += static_cast<double>(demand_now_) * static_cast<double>(to - from);
            from = to;
        }
    }
    since_ = now;
    held_now_ = held;
    up_now_ = up;
    demand_now_ = demand;
}

std::vector<double> Accounting::means(const std::vector<double> &sums) const {
    std::vector<double> result(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const Time begin = static_cast<Time>(i) * step_;
        const Time length = std::min(end_, begin + step_) - begin;
        result[i] = length > 0 ? sums[i] / static_cast<double>(length) : 0;
    }
    return result;
}

} // namespace singularity::simulator
