// SPDX-License-Identifier: GPL-2.0-or-later
#include "ranges.hpp"

#include <iterator>
#include <numeric>

namespace singularity::client {

void RangeAllocator::cut(std::map<std::uint64_t, std::uint64_t>::iterator piece, Range range) {
    const Range whole{.address = piece->first, .size = piece->second};
    free_.erase(piece);
    if (whole.address < range.address)
        free_.emplace(whole.address, range.address - whole.address);
    if (range.end() < whole.end())
        free_.emplace(range.end(), whole.end() - range.end());
}

std::optional<std::uint64_t> RangeAllocator::allocate(std::uint64_t size, std::uint64_t alignment) {
    for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
        const Range whole{.address = piece->first, .size = piece->second};
        const auto start = round_up(whole.address, alignment);
        if (start < whole.address || start - whole.address > whole.size || whole.end() - start < size)
            continue;
        cut(piece, {.address = start, .size = size});
        return start;
    }
    return std::nullopt;
}

bool RangeAllocator::allocate_at(Range range) {
    auto after = free_.upper_bound(range.address);
    if (after == free_.begin())
        return false;
    const auto piece = std::prev(after);
    if (!Range{.address = piece->first, .size = piece->second}.contains(range.address, range.size))
        return false;
    cut(piece, range);
    return true;
}

void RangeAllocator::release(Range range) {
    if (range.size == 0)
        return;
    auto after = free_.lower_bound(range.address);
    if (after != free_.end() && after->first == range.end()) {
        range.size += after->second;
        after = free_.erase(after);
    }
    if (after != free_.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second == range.address) {
            before->second += range.size;
            return;
        }
    }
    free_.emplace(range.address, range.size);
}

std::uint64_t RangeAllocator::free_bytes() const {
    return std::accumulate(free_.begin(), free_.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const auto &piece) { return sum + piece.second; });
}

} // namespace singularity::client
