// SPDX-License-Identifier: GPL-2.0-or-later
#include "elastic_range.hpp"

#include <charconv>
#include <system_error>

#include <fmt/format.h>

namespace singularity::spank {

namespace {

constexpr std::string_view kRangeFix =
    "give MIN-MAX in GPUs of the whole job, e.g. --singularity-elastic=2-8, or no value "
    "for 1 to the number requested";

Expected<std::uint32_t> parse_count(std::string_view text, std::string_view whole, std::string_view name) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range)
        return failure("accept --singularity-elastic", std::string(whole),
                       fmt::format("{} '{}' is too large; {}", name, text, kRangeFix));
    if (error != std::errc{} || end != text.data() + text.size())
        return failure("accept --singularity-elastic", std::string(whole),
                       fmt::format("{} '{}' is not a whole number; {}", name, text, kRangeFix));
    if (value == 0)
        return failure("accept --singularity-elastic", std::string(whole),
                       fmt::format("{} is 0, and a job needs at least 1 GPU; {}", name, kRangeFix));
    return value;
}

} // namespace

Expected<ElasticRange> parse_elastic_range(std::string_view text, const ElasticLimits &limits) {
    const auto refuse = [&](const std::string &why) {
        return failure("accept --singularity-elastic", std::string(text), why);
    };
    if (!limits.enabled)
        return refuse("elastic jobs are disabled on this cluster (elastic.enabled in singularity.yaml); "
                      "submit without it");
    if (text.empty())
        return ElasticRange{limits.min_gpus, std::nullopt};

    const auto dash = text.find('-');
    if (dash == std::string_view::npos)
        return refuse(fmt::format("there is no '-' in it; {}", kRangeFix));
    auto min = parse_count(text.substr(0, dash), text, "MIN");
    if (!min)
        return propagate(min);
    auto max = parse_count(text.substr(dash + 1), text, "MAX");
    if (!max)
        return propagate(max);
    if (*min > *max)
        return refuse(fmt::format("MIN {} is greater than MAX {}; {}", *min, *max, kRangeFix));
    if (*min < limits.min_gpus)
        return refuse(
            fmt::format("MIN {} is less than this cluster allows; give at least {} (elastic.min_gpus)", *min,
                        limits.min_gpus));
    if (*max > limits.max_gpus)
        return refuse(
            fmt::format("MAX {} is more than this cluster allows; give at most {} (elastic.max_gpus)", *max,
                        limits.max_gpus));
    return ElasticRange{*min, *max};
}

std::string to_string(const ElasticRange &range) {
    return range.max ? fmt::format("{}-{}", range.min, *range.max) : fmt::format("{}-requested", range.min);
}

} // namespace singularity::spank
