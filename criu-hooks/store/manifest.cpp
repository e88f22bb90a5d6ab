// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/store/manifest.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace singularity::store {

std::uint64_t Image::size() const {
    std::uint64_t sum = 0;
    for (const Chunk &chunk : chunks)
        sum += chunk.size;
    return sum;
}

bool is_id(std::string_view text) {
    constexpr std::size_t kLeast = 8;
    constexpr std::size_t kMost = 64;
    const auto is_letter = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    return text.size() >= kLeast && text.size() <= kMost && is_letter(text.front()) &&
           std::ranges::all_of(text, [&](char c) { return is_letter(c) || c == '-'; });
}

std::string byte_count(std::uint64_t bytes) {
    constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    constexpr double kStep = 1024;
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= kStep && unit + 1 < kUnits.size(); ++unit)
        value /= kStep;
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits.at(unit));
}

} // namespace singularity::store
