// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/heap.hpp"

#include <algorithm>
#include <iterator>

namespace singularity::softgpu::driver {

namespace {
// What cuMemAlloc promises is 256; texture references want 512.
constexpr std::uint64_t kUnit = 512;
constexpr std::uint64_t kSmallUnit = 16; // of malloc in kernels
constexpr std::uint64_t kLarge = std::uint64_t{1} << 20U;
} // namespace

Result<Block> Heap::allocate(std::uint64_t size) {
    if (size == 0 || size > (std::uint64_t{1} << 46U))
        return refused(size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY);
    const bool large = size >= kLarge && !one_slab_;
    const std::uint64_t room =
        large ? round_up(size, kGranularity) : round_up(size, one_slab_ ? kSmallUnit : kUnit);
    const std::scoped_lock lock(mutex_);
    // First fit: a block of its own slab's size only takes an empty slab of just that size.
    const auto take = [&](Slab &slab, std::map<std::uint64_t, std::uint64_t>::iterator hole) {
        const auto [address, free] = *hole;
        slab.free.erase(hole);
        if (free > room)
            slab.free.emplace(address + room, free - room);
        ++slab.blocks;
        blocks_.emplace(address, room);
        used_ += room;
        return Block{address, size, room, slab.mapping};
    };
    for (auto &[base, slab] : slabs_) {
        if (!one_slab_ && (slab.mapping->size() > kGranularity) != (room > kGranularity))
            continue;
        for (auto hole = slab.free.begin(); hole != slab.free.end(); ++hole)
            if (hole->second >= room && (!large || hole->second - room <= room))
                return take(slab, hole);
    }
    if (one_slab_ && !slabs_.empty())
        return refused(CUDA_ERROR_OUT_OF_MEMORY);
    auto mapping = grow_(std::max(room, kGranularity));
    if (!mapping && mapping.error() == CUDA_ERROR_OUT_OF_MEMORY && held_ != 0) {
        trim_locked(0);
        mapping = grow_(std::max(room, kGranularity));
    }
    if (!mapping)
        return refused(mapping.error());
    Slab &slab = slabs_[(*mapping)->address()];
    slab.mapping = *std::move(mapping);
    held_ += slab.mapping->size();
    slab.free.emplace(slab.mapping->address(), slab.mapping->size());
    if (room > slab.mapping->size())
        return refused(CUDA_ERROR_OUT_OF_MEMORY);
    return take(slab, slab.free.begin());
}

bool Heap::free(std::uint64_t address) {
    const std::scoped_lock lock(mutex_);
    const auto block = blocks_.find(address);
    if (block == blocks_.end())
        return false;
    const std::uint64_t room = block->second;
    blocks_.erase(block);
    used_ -= room;
    Slab &slab = std::prev(slabs_.upper_bound(address))->second;
    --slab.blocks;
    auto [hole, added] = slab.free.emplace(address, room);
    if (hole != slab.free.begin())
        if (const auto before = std::prev(hole); before->first + before->second == address) {
            before->second += room;
            slab.free.erase(hole);
            hole = before;
        }
    if (const auto after = std::next(hole);
        after != slab.free.end() && hole->first + hole->second == after->first) {
        hole->second += after->second;
        slab.free.erase(after);
    }
    if (slab.blocks == 0 && held_ > keep_)
        trim_locked(keep_);
    return true;
}

void Heap::trim_locked(std::uint64_t keep) {
    for (auto slab = slabs_.begin(); slab != slabs_.end() && held_ > keep;) {
        if (slab->second.blocks != 0) {
            ++slab;
            continue;
        }
        held_ -= slab->second.mapping->size();
        slab = slabs_.erase(slab);
    }
}

void Heap::trim(std::uint64_t keep) {
    const std::scoped_lock lock(mutex_);
    trim_locked(keep);
}

void Heap::set_keep(std::uint64_t keep) {
    const std::scoped_lock lock(mutex_);
    keep_ = keep;
}

std::uint64_t Heap::held() const {
    const std::scoped_lock lock(mutex_);
    return held_;
}

std::uint64_t Heap::used() const {
    const std::scoped_lock lock(mutex_);
    return used_;
}

} // namespace singularity::softgpu::driver
