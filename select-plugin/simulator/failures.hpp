// SPDX-License-Identifier: GPL-2.0-or-later
// When which node fails: the same for every policy, from the seed alone.
#pragma once

#include "units.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace singularity::simulator {

// A good 64-bit mix of a number (splitmix64's finaliser, Steele et al., OOPSLA'14).
inline std::uint64_t mixed(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15U;
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31U);
}

// From 0 to less than 1.
inline double unit_interval(std::uint64_t bits) { return static_cast<double>(bits >> 11U) * 0x1.0p-53; }

class Failures {
  public:
    // Times between the end of one repair and the next failure are exponential. mean 0: never.
    Failures(std::int32_t nodes, std::int64_t mean, std::uint64_t seed)
        : mean_(mean), seed_(seed), counts_(static_cast<std::size_t>(nodes)) {}

    // How long the node works from now on.
    Time next(std::int32_t node) {
        if (mean_ == 0)
            return kNever;
        const std::uint64_t draw = counts_[static_cast<std::size_t>(node)]++;
        const double u = unit_interval(mixed(mixed(seed_ ^ mixed(static_cast<std::uint64_t>(node))) + draw));
        return 1 + static_cast<Time>(-std::log1p(-u) * static_cast<double>(mean_));
    }

  private:
    std::int64_t mean_;
    std::uint64_t seed_;
    std::vector<std::uint64_t> counts_;
};

} // namespace singularity::simulator
