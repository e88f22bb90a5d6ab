// SPDX-License-Identifier: GPL-2.0-or-later
#include "slab_allocator.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace singularity::client {

namespace {
constexpr int kOutOfMemory = 2; // CUDA_ERROR_OUT_OF_MEMORY
}

std::expected<SlabAllocator::Slab *, int> SlabAllocator::new_slab(std::uint64_t size, bool shared) {
    const auto address = source_->map(size, kUnit);
    if (!address)
        return std::unexpected(address.error());
    const Range range{.address = *address, .size = size};
    auto slab = std::make_unique<Slab>(Slab{.range = range, .free = RangeAllocator(range), .shared = shared});
    return slabs_.emplace(range.address, std::move(slab)).first->second.get();
}

SlabAllocator::Slab *SlabAllocator::with_room(std::uint64_t taken, bool shared) {
    for (auto &[address, slab] : slabs_) {
        if (slab->shared != shared)
            continue;
        // A slab of its own must not be held by something much smaller.
        if (!shared && (slab->used != 0 || slab->range.size != taken))
            continue;
        if (slab->range.size - slab->used >= taken && slab->free.free_bytes() >= taken) {
            auto trial = slab->free.allocate(taken, kAlignment);
            if (trial) {
                slab->free.release({.address = *trial, .size = taken});
                return slab.get();
            }
        }
    }
    return nullptr;
}

SlabAllocator::Slab *SlabAllocator::empty_slab(bool shared, const Slab *but) {
    for (auto &[address, slab] : slabs_)
        if (slab.get() != but && slab->shared == shared && slab->used == 0)
            return slab.get();
    return nullptr;
}

void SlabAllocator::give_back(Slab &slab) {
    const Range range = slab.range;
    slabs_.erase(range.address);
    source_->unmap(range);
}

bool SlabAllocator::give_back_empty() {
    bool any = false;
    for (const bool shared : {false, true})
        while (auto *slab = empty_slab(shared, nullptr)) {
            give_back(*slab);
            any = true;
        }
    return any;
}

std::expected<std::uint64_t, int> SlabAllocator::allocate(std::uint64_t size) {
    const std::scoped_lock lock(lock_);
    const bool shared = size <= kSmall;
    const auto unit = shared ? kAlignment : kUnit;
    if (size > ~std::uint64_t{0} - unit)
        return std::unexpected(kOutOfMemory);
    const auto taken = round_up(size, unit);
    auto *slab = with_room(taken, shared);
    if (slab == nullptr) {
        auto made = new_slab(shared ? growth_ : taken, shared);
        // What is kept for later may be what is missing now.
        if (!made && made.error() == kOutOfMemory && give_back_empty())
            made = new_slab(shared ? kUnit : taken, shared);
        if (!made && made.error() == kOutOfMemory && shared && growth_ > kUnit)
            made = new_slab(kUnit, shared);
        if (!made)
            return std::unexpected(made.error());
        if (shared)
            growth_ = std::min(kGrowth, growth_ * 2);
        slab = *made;
    }
    const auto address = slab->free.allocate(taken, kAlignment);
    if (!address)
        return std::unexpected(kOutOfMemory);
    slab->used += taken;
    allocations_.emplace(*address, Allocation{.size = size, .taken = taken, .slab = slab});
    return *address;
}

std::optional<std::uint64_t> SlabAllocator::release(std::uint64_t address) {
    const std::scoped_lock lock(lock_);
    const auto found = allocations_.find(address);
    if (found == allocations_.end())
        return std::nullopt;
    const auto allocation = found->second;
    allocations_.erase(found);
    auto &slab = *allocation.slab;
    slab.free.release({.address = address, .size = allocation.taken});
    slab.used -= allocation.taken;
    if (slab.used == 0)
        if (auto *other = empty_slab(slab.shared, &slab); other != nullptr)
            give_back(*other);
    return allocation.size;
}

std::optional<Range> SlabAllocator::find(std::uint64_t address) const {
    const std::scoped_lock lock(lock_);
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin())
        return std::nullopt;
    const auto &[start, allocation] = *std::prev(after);
    if (address - start >= allocation.size)
        return std::nullopt;
    return Range{.address = start, .size = allocation.size};
}

std::uint64_t SlabAllocator::free_bytes() const {
    const std::scoped_lock lock(lock_);
    std::uint64_t sum = 0;
    for (const auto &[address, slab] : slabs_)
        sum += slab->range.size - slab->used;
    return sum;
}

std::uint64_t SlabAllocator::used_bytes() const {
    const std::scoped_lock lock(lock_);
    std::uint64_t sum = 0;
    for (const auto &[address, slab] : slabs_)
        sum += slab->used;
    return sum;
}

void SlabAllocator::trim() {
    const std::scoped_lock lock(lock_);
    static_cast<void>(give_back_empty());
}

void SlabAllocator::forget() {
    const std::scoped_lock lock(lock_);
    slabs_.clear();
    allocations_.clear();
    growth_ = kUnit;
}

} // namespace singularity::client
