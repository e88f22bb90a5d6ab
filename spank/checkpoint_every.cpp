// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint_every.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>
#include <vector>

#include <fmt/format.h>

namespace singularity::spank {

namespace {

using std::chrono::seconds;

constexpr std::string_view kEveryFix =
    "give minutes, minutes:seconds, hours:minutes:seconds or days-hours, e.g. "
    "--singularity-checkpoint-every=30, or off";

// Far more than any job runs; keeps the sum below inside 64 bits.
constexpr seconds kMost = std::chrono::days(365);

// What the numbers between the colons count, by how many there are; a day in front changes it.
constexpr std::array<std::array<std::int64_t, 3>, 3> kWithoutDays{{{60}, {60, 1}, {3600, 60, 1}}};
constexpr std::array<std::array<std::int64_t, 3>, 3> kWithDays{{{3600}, {3600, 60}, {3600, 60, 1}}};
constexpr std::int64_t kDay = 86400;

// In units, and not more than kMost. No sign, no blank: from_chars takes neither for an unsigned number.
std::optional<std::int64_t> seconds_in(std::string_view text, std::int64_t unit) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || text.empty())
        return std::nullopt;
    const auto most =
        static_cast<std::uint64_t>((kMost.count() / unit) + 1); // more than is allowed, and no overflow
    if (error == std::errc::result_out_of_range)
        return static_cast<std::int64_t>(most) * unit;
    return error == std::errc{} ? std::optional(static_cast<std::int64_t>(std::min(value, most)) * unit)
                                : std::nullopt;
}

std::optional<seconds> seconds_in(std::string_view text) {
    std::int64_t total = 0;
    const auto dash = text.find('-');
    if (dash != std::string_view::npos) {
        const auto days = seconds_in(text.substr(0, dash), kDay);
        if (!days)
            return std::nullopt;
        total = *days;
        text.remove_prefix(dash + 1);
    }
    std::vector<std::string_view> parts;
    for (auto colon = text.find(':'); colon != std::string_view::npos; colon = text.find(':')) {
        parts.push_back(text.substr(0, colon));
        text.remove_prefix(colon + 1);
    }
    parts.push_back(text);
    const auto &units = dash != std::string_view::npos ? kWithDays : kWithoutDays;
    if (parts.size() > units.size())
        return std::nullopt;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto part = seconds_in(parts[i], units.at(parts.size() - 1).at(i));
        if (!part)
            return std::nullopt;
        total += *part;
    }
    return seconds(total);
}

} // namespace

Expected<seconds> parse_checkpoint_every(std::string_view text, std::chrono::milliseconds least) {
    const auto refuse = [&](const std::string &why) {
        return failure("accept --singularity-checkpoint-every", std::string(text), why);
    };
    if (text == "off")
        return seconds(0);
    const auto time = seconds_in(text);
    if (!time)
        return refuse(fmt::format("it is no time; {}", kEveryFix));
    if (*time > kMost)
        return refuse(fmt::format("it is more than a year; {}", kEveryFix));
    if (*time != seconds(0) && *time < least)
        return refuse(fmt::format("it is more often than this cluster allows; give at least {} "
                                  "(elastic.checkpoint_every_least), or off",
                                  to_slurm_time(std::chrono::ceil<seconds>(least))));
    return *time;
}

std::string to_slurm_time(seconds time) {
    const auto minutes = std::chrono::floor<std::chrono::minutes>(time);
    const auto rest = (time - minutes).count();
    return rest == 0 ? fmt::format("{}", minutes.count()) : fmt::format("{}:{:02}", minutes.count(), rest);
}

} // namespace singularity::spank
