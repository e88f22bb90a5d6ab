// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/slurm/memory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace singularity::slurm {

namespace {

// More is no memory of anything; products of two of these fit.
constexpr std::uint64_t kMost = std::uint64_t{1} << 31; // MiB
constexpr std::uint64_t kMostRanks = std::uint64_t{1} << 20;
// As a device proxy does, of a device that several ranks share (docs/splicing.md).
constexpr std::uint64_t kReserveShare = 32;
constexpr std::uint64_t kLargestReserve = 2048; // MiB

} // namespace

std::string in_gibibytes(std::uint64_t mebibytes) {
    constexpr double kEach = 1024;
    return fmt::format("{:.1f} GiB", static_cast<double>(mebibytes) / kEach);
}

std::optional<Footprint> footprint_of(const Note &note) {
    const auto text = note.get(kFootprint);
    std::array<std::uint64_t, 3> numbers{};
    std::string_view left(text);
    for (std::size_t at = 0; at < numbers.size(); ++at) {
        const auto part = left.substr(0, left.find(':'));
        const auto [end, error] = std::from_chars(part.begin(), part.end(), numbers.at(at));
        const bool last = at + 1 == numbers.size();
        if (error != std::errc() || end != part.end() || numbers.at(at) > kMost ||
            last != (part.size() == left.size()))
            return std::nullopt;
        left.remove_prefix(std::min(left.size(), part.size() + 1));
    }
    const auto ranks = note.number("ranks").value_or(0);
    if (ranks == 0 || ranks > kMostRanks || numbers[1] == 0)
        return std::nullopt;
    return Footprint{.ranks = ranks, .devices = numbers[0], .device = numbers[1], .host = numbers[2]};
}

std::string footprint_text(const Footprint &footprint) {
    return fmt::format("{}:{}:{}", footprint.devices, footprint.device, footprint.host);
}

std::uint64_t away_on(const Footprint &footprint, std::uint64_t gpus) {
    if (gpus == 0)
        return 0;
    const auto room = footprint.device - std::min(footprint.device / kReserveShare, kLargestReserve);
    const auto away = [&](std::uint64_t ranks) {
        const auto needs = footprint.devices * ranks / footprint.ranks;
        return ranks > 1 && needs > room ? needs - room : 0; // one alone has fitted
    };
    const auto fewer = footprint.ranks / gpus;
    const auto busiest = footprint.ranks % gpus; // so many GPUs have one more
    return (busiest * away(fewer + 1)) + ((std::min(gpus, footprint.ranks) - busiest) * away(fewer));
}

Expected<void> check_memory(std::uint64_t gpus, const Note &note, const HostMemory &memory) {
    const auto footprint = footprint_of(note);
    const auto all = memory.per_gpu != 0 ? memory.per_gpu * gpus : memory.all;
    // One that has less than its programs use is not held to it.
    if (!footprint || all == 0 || (memory.per_gpu == 0 && all < footprint->host))
        return {};
    const auto away = away_on(*footprint, gpus);
    // What has been larger already is no reason, whatever is thought of it: replicas need less than is
    // counted here.
    const auto now = note.number("gpus").value_or(0);
    if (away == 0 || footprint->host + away <= all || (now != 0 && away <= away_on(*footprint, now)))
        return {};
    return failure(
        "resize", "the job",
        fmt::format(
            "to {} GPUs: its {} ranks have {} on devices of {} each, {} of which would be in memory of its "
            "hosts, beside {} of its programs, and Slurm gives it {} there: ask for more with --mem, or "
            "choose more GPUs",
            gpus, footprint->ranks, in_gibibytes(footprint->devices), in_gibibytes(footprint->device),
            in_gibibytes(away), in_gibibytes(footprint->host), in_gibibytes(all)),
        ENOMEM);
}

std::uint64_t memory_in_tres(std::string_view text) {
    constexpr std::string_view kName = "mem=";
    while (!text.empty()) {
        const auto part = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), part.size() + 1));
        if (!part.starts_with(kName))
            continue;
        const auto value = part.substr(kName.size());
        double number = 0;
        const auto [end, error] = std::from_chars(value.begin(), value.end(), number);
        const std::string_view unit(end, value.end());
        for (const auto &[name, each] : {std::pair("K", 1.0 / 1024),
                                         {"M", 1.0},
                                         {"", 1.0},
                                         {"G", 1024.0},
                                         {"T", 1024.0 * 1024},
                                         {"P", 1024.0 * 1024 * 1024}})
            if (error == std::errc() && unit == name && number >= 0)
                return static_cast<std::uint64_t>(std::min(number * each, static_cast<double>(kMost)));
        return 0;
    }
    return 0;
}

std::uint64_t memory_per_gpu(std::string_view text) {
    const auto at = text.rfind(':');
    std::uint64_t number = 0;
    if (at == std::string_view::npos || !text.contains("gpu") || text.contains(','))
        return 0;
    const auto value = text.substr(at + 1);
    const auto [end, error] = std::from_chars(value.begin(), value.end(), number);
    return error == std::errc() && end == value.end() ? std::min(number, kMost) : 0;
}

} // namespace singularity::slurm
