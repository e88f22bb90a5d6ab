// SPDX-License-Identifier: GPL-2.0-or-later
// Sets of processors as sched_setaffinity(2) has them: a bit for each, the first one's the lowest of the
// first byte. glibc's cpu_set_t has room for 1024.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace singularity {

using CpuMask = std::vector<char>;
inline constexpr std::size_t kLargestCpuMask = 1024; // bytes

[[nodiscard]] inline bool has_processor(std::span<const char> mask, std::size_t number) {
    return number / 8 < mask.size() &&
           (static_cast<unsigned char>(mask[number / 8]) >> (number % 8) & 1U) != 0;
}

[[nodiscard]] inline std::vector<std::size_t> processors_in(std::span<const char> mask) {
    std::vector<std::size_t> out;
    for (std::size_t number = 0; number < mask.size() * 8; ++number)
        if (has_processor(mask, number))
            out.push_back(number);
    return out;
}

[[nodiscard]] inline bool same_processors(std::span<const char> one, std::span<const char> other) {
    return processors_in(one) == processors_in(other);
}

// Of `to` those that have the places which `mask` has in `from`: the second and third of four go on as the
// second and third of four others. Where there are fewer, places are counted from the beginning again. Empty
// where `mask` is not within `from`, or nothing is in `to`.
[[nodiscard]] inline CpuMask carried_over(std::span<const char> mask, std::span<const char> from,
                                          std::span<const char> to) {
    const auto wanted = processors_in(mask);
    const auto before = processors_in(from);
    const auto after = processors_in(to);
    if (after.empty() || wanted.empty())
        return {};
    CpuMask out(to.size(), 0);
    for (const std::size_t number : wanted) {
        const auto place = std::ranges::find(before, number);
        if (place == before.end())
            return {};
        const std::size_t there = after[static_cast<std::size_t>(place - before.begin()) % after.size()];
        out[there / 8] = static_cast<char>(static_cast<unsigned char>(out[there / 8]) | 1U << (there % 8));
    }
    return out;
}

} // namespace singularity
