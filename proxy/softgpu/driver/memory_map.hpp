// SPDX-License-Identifier: GPL-2.0-or-later
// Everything that has an address on a device or is known to the driver, by address: what
// cuPointerGetAttribute tells, which copies are allowed, and what a launch may touch.
#pragma once

#include "driver/mapping.hpp"
#include "engine/engine.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <shared_mutex>
#include <vector>

namespace singularity::softgpu::driver {

enum class MemoryKind : std::uint8_t {
    device,     // cuMemAlloc, variables of modules
    pool,       // cuMemAllocAsync, memory of graphs
    managed,    // cuMemAllocManaged, managed variables
    pinned,     // cuMemHostAlloc
    registered, // cuMemHostRegister
    mapped,     // cuMemMap
};

struct Allocation {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    MemoryKind kind = MemoryKind::device;
    std::uint64_t id = 0;        // given by MemoryMap::add, never used again
    std::uint64_t owner = 0;     // id of the context; 0: none
    CUcontext context = nullptr; // the owner's handle
    unsigned device = 0;         // ordinal
    unsigned flags = 0;          // of cuMemHostAlloc, cuMemHostRegister, cuMemAllocManaged
    bool read_only = false;
    bool constant = false; // a .const variable: kernels only read it
    bool internal = false; // of a module or of the driver itself: not the program's to free
    bool sync_memops = false;
    CUmemoryPool pool = nullptr;
    CUmemGenericAllocationHandle physical = 0;
    std::uint64_t physical_offset = 0;
    // Bit per device.
    std::uint64_t readable = 0;
    std::uint64_t writable = 0;
    std::shared_ptr<Mapping> mapping;
    std::shared_ptr<void> more; // advice on managed memory and the like

    [[nodiscard]] std::uint64_t end() const { return address + size; }
    [[nodiscard]] bool on_host() const {
        return kind == MemoryKind::pinned || kind == MemoryKind::registered;
    }
};

// Whose kernels want to touch memory.
struct Viewer {
    std::uint64_t context = 0;     // its id
    unsigned device = 0;           // its device's ordinal
    std::set<std::uint64_t> peers; // contexts whose memory it may touch
};

class MemoryMap {
  public:
    // The id.
    std::uint64_t add(Allocation allocation);
    // Only the one with this id, if it is not 0.
    std::optional<Allocation> remove(std::uint64_t address, std::uint64_t id = 0);
    // The one that begins there / that holds the address.
    [[nodiscard]] std::optional<Allocation> at(std::uint64_t address) const;
    [[nodiscard]] std::optional<Allocation> holding(std::uint64_t address) const;
    // All that touch [address, address + size), by address.
    [[nodiscard]] std::vector<Allocation> within(std::uint64_t address, std::uint64_t size) const;
    [[nodiscard]] bool any(std::uint64_t address, std::uint64_t size) const;
    // Changes the one that begins there in place; false: there is none.
    template <class Change>
    bool change(std::uint64_t address, Change &&how) {
        const std::unique_lock lock(mutex_);
        const auto found = allocations_.find(address);
        if (found == allocations_.end())
            return false;
        how(found->second);
        generation_.fetch_add(1, std::memory_order_release);
        return true;
    }
    std::vector<Allocation> remove_owned_by(std::uint64_t context);

    // Something that decides what is visible has changed.
    void touch() { generation_.fetch_add(1, std::memory_order_release); }
    // Grows with every change.
    [[nodiscard]] std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
    // What its kernels may touch. The result holds the mappings.
    [[nodiscard]] std::shared_ptr<const Ranges> visible_to(const Viewer &viewer) const;

  private:
    mutable std::shared_mutex mutex_;
    std::map<std::uint64_t, Allocation> allocations_;
    std::atomic<std::uint64_t> generation_{1};
    std::uint64_t next_id_ = 1;
};

[[nodiscard]] MemoryMap &memory_map();
// Whether its kernels may touch it.
[[nodiscard]] bool visible(const Allocation &allocation, const Viewer &viewer);

} // namespace singularity::softgpu::driver
