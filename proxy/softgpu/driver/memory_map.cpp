// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/memory_map.hpp"

#include <iterator>
#include <mutex>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

bool writable(const Allocation &allocation, const Viewer &viewer) {
    if (allocation.kind == MemoryKind::mapped || allocation.kind == MemoryKind::pool)
        return (allocation.writable >> viewer.device & 1U) != 0;
    return !allocation.read_only && !allocation.constant;
}

struct HeldRanges {
    Ranges ranges;
    std::vector<std::shared_ptr<Mapping>> mappings;
};

} // namespace

std::uint64_t MemoryMap::add(Allocation allocation) {
    const std::unique_lock lock(mutex_);
    const std::uint64_t id = next_id_++;
    allocation.id = id;
    allocations_.insert_or_assign(allocation.address, std::move(allocation));
    generation_.fetch_add(1, std::memory_order_release);
    return id;
}

std::optional<Allocation> MemoryMap::remove(std::uint64_t address, std::uint64_t id) {
    const std::unique_lock lock(mutex_);
    const auto found = allocations_.find(address);
    if (found == allocations_.end() || (id != 0 && found->second.id != id))
        return std::nullopt;
    std::optional<Allocation> out(std::move(found->second));
    allocations_.erase(found);
    generation_.fetch_add(1, std::memory_order_release);
    return out;
}

std::optional<Allocation> MemoryMap::at(std::uint64_t address) const {
    const std::shared_lock lock(mutex_);
    const auto found = allocations_.find(address);
    return found == allocations_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Allocation> MemoryMap::holding(std::uint64_t address) const {
    const std::shared_lock lock(mutex_);
    const auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin())
        return std::nullopt;
    const Allocation &found = std::prev(after)->second;
    return address < found.end() ? std::optional(found) : std::nullopt;
}

std::vector<Allocation> MemoryMap::within(std::uint64_t address, std::uint64_t size) const {
    std::vector<Allocation> out;
    const std::shared_lock lock(mutex_);
    auto at = allocations_.upper_bound(address);
    if (at != allocations_.begin() && std::prev(at)->second.end() > address)
        --at;
    for (; at != allocations_.end() && (at->first <= address || at->first - address < size); ++at)
        out.push_back(at->second);
    return out;
}

bool MemoryMap::any(std::uint64_t address, std::uint64_t size) const {
    const std::shared_lock lock(mutex_);
    const auto at = allocations_.upper_bound(address);
    if (at != allocations_.begin() && std::prev(at)->second.end() > address)
        return true;
    return at != allocations_.end() && at->first - address < size;
}

std::vector<Allocation> MemoryMap::remove_owned_by(std::uint64_t context) {
    std::vector<Allocation> out;
    const std::unique_lock lock(mutex_);
    for (auto at = allocations_.begin(); at != allocations_.end();) {
        if (at->second.owner == context && at->second.kind != MemoryKind::mapped) {
            out.push_back(std::move(at->second));
            at = allocations_.erase(at);
        } else {
            ++at;
        }
    }
    generation_.fetch_add(1, std::memory_order_release);
    return out;
}

std::shared_ptr<const Ranges> MemoryMap::visible_to(const Viewer &viewer) const {
    std::vector<Range> ranges;
    std::vector<std::shared_ptr<Mapping>> mappings;
    {
        const std::shared_lock lock(mutex_);
        for (const auto &[address, allocation] : allocations_) {
            if (!visible(allocation, viewer))
                continue;
            ranges.push_back({address, allocation.end(), writable(allocation, viewer)});
            if (allocation.mapping != nullptr && (mappings.empty() || mappings.back() != allocation.mapping))
                mappings.push_back(allocation.mapping);
        }
    }
    const auto held = std::make_shared<const HeldRanges>(Ranges(std::move(ranges)), std::move(mappings));
    return {held, &held->ranges};
}

bool visible(const Allocation &allocation, const Viewer &viewer) {
    const std::uint64_t bit = std::uint64_t{1} << viewer.device;
    switch (allocation.kind) {
    case MemoryKind::device:
        return allocation.owner == viewer.context || viewer.peers.contains(allocation.owner);
    case MemoryKind::pool:
    case MemoryKind::mapped:
        return (allocation.readable & bit) != 0;
    case MemoryKind::managed:
    case MemoryKind::pinned:
    case MemoryKind::registered:
        return true;
    }
    return false;
}

MemoryMap &memory_map() {
    static auto &map = *new MemoryMap; // outlives every thread
    return map;
}

} // namespace singularity::softgpu::driver
