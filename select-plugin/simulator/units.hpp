// SPDX-License-Identifier: GPL-2.0-or-later
// The words that every file of the simulator uses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace singularity::simulator {

// Milliseconds since the first second of the trace. Whole numbers: two events at one time are at one time
// whatever the compiler makes of floating point.
using Time = std::int64_t;
inline constexpr Time kSecond = 1000;
inline constexpr Time kHour = 3600 * kSecond;
inline constexpr Time kNever = std::numeric_limits<Time>::max();

using JobIndex = std::uint32_t; // position in the trace as it is simulated

enum class Tier : std::uint8_t { kPremium, kStandard, kBasic };
inline constexpr std::size_t kTiers = 3;
inline constexpr std::array<std::string_view, kTiers> kTierNames{"premium", "standard", "basic"};

inline std::size_t index_of(Tier tier) { return static_cast<std::size_t>(tier); }

// GPUs on one node; a placement names every node once.
struct Share {
    std::int32_t node;
    std::int32_t gpus;
    bool operator==(const Share &) const = default;
};
using Placement = std::vector<Share>;

} // namespace singularity::simulator
