// SPDX-License-Identifier: GPL-2.0-or-later
// What --singularity-elastic says: between how many GPUs, counted over the whole job, the planner may move
// it.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace singularity::spank {

struct ElasticRange {
    std::uint32_t min; // GPUs, at least 1
    // GPUs, at least min. Absent: as many as the job requests, a number that only the controller knows for
    // certain.
    std::optional<std::uint32_t> max;
};

// What the administrator allows (elastic.* of singularity.yaml).
struct ElasticLimits {
    bool enabled;
    std::uint32_t min_gpus; // the least MIN a user may ask for
    std::uint32_t max_gpus; // the greatest MAX a user may ask for
};

// text: the option's argument, MIN-MAX, or empty where the option was given without one. The error's reason
// names the value and the fix, in the user's words.
[[nodiscard]] Expected<ElasticRange> parse_elastic_range(std::string_view text, const ElasticLimits &limits);

// "2-8", or "1-requested".
[[nodiscard]] std::string to_string(const ElasticRange &range);

} // namespace singularity::spank
