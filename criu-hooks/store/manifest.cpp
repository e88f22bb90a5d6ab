// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/store/manifest.hpp"

#include <algorithm>

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

} // namespace singularity::store
