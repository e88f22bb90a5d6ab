// SPDX-License-Identifier: GPL-2.0-or-later
// Device memory inside slabs: the bookkeeping, which is the client's; the slabs come from whoever it is
// given.
//
// Small allocations share slabs, larger ones have slabs of their own. A slab that has become empty is given
// back, but for one of each sort, so that a loop of allocation and release does not go to the daemon each
// time.
#pragma once

#include "ranges.hpp"

#include <cstdint>
#include <expected>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace singularity::client {

// Errors are CUresult.
class SlabSource {
  public:
    SlabSource() = default;
    SlabSource(const SlabSource &) = delete;
    SlabSource &operator=(const SlabSource &) = delete;
    SlabSource(SlabSource &&) = delete;
    SlabSource &operator=(SlabSource &&) = delete;
    virtual ~SlabSource() = default;

    // A slab of that size, a multiple of kSlabUnit, at an address that is one, or at alignment if that is
    // more.
    [[nodiscard]] virtual std::expected<std::uint64_t, int> map(std::uint64_t size,
                                                                std::uint64_t alignment) = 0;
    virtual void unmap(Range slab) = 0;
};

class SlabAllocator {
  public:
    static constexpr std::uint64_t kUnit = std::uint64_t{2} << 20;
    static constexpr std::uint64_t kAlignment = 512;                  // of what cuMemAlloc returns
    static constexpr std::uint64_t kSmall = std::uint64_t{1} << 20;   // up to this allocations share slabs
    static constexpr std::uint64_t kGrowth = std::uint64_t{32} << 20; // of shared slabs, at most

    // The source must outlive it.
    explicit SlabAllocator(SlabSource &source) : source_(&source) {}

    // size: not 0.
    [[nodiscard]] std::expected<std::uint64_t, int> allocate(std::uint64_t size);
    // The size it was allocated with; nothing: there is no such allocation.
    [[nodiscard]] std::optional<std::uint64_t> release(std::uint64_t address);
    // The allocation that holds the address.
    [[nodiscard]] std::optional<Range> find(std::uint64_t address) const;
    // Bytes that need no new slab.
    [[nodiscard]] std::uint64_t free_bytes() const;
    [[nodiscard]] std::uint64_t used_bytes() const;
    // Gives back the empty slabs that are kept.
    void trim();
    // Forgets everything: the slabs are gone with their context.
    void forget();

  private:
    struct Slab {
        Range range;
        RangeAllocator free;
        std::uint64_t used = 0;
        bool shared = false;
    };
    struct Allocation {
        std::uint64_t size;  // as asked for
        std::uint64_t taken; // rounded
        Slab *slab;
    };

    [[nodiscard]] std::expected<Slab *, int> new_slab(std::uint64_t size, bool shared);
    [[nodiscard]] Slab *with_room(std::uint64_t taken, bool shared);
    [[nodiscard]] Slab *empty_slab(bool shared, const Slab *but);
    void give_back(Slab &slab);
    [[nodiscard]] bool give_back_empty();

    SlabSource *source_;
    mutable std::mutex lock_;
    std::uint64_t growth_ = kUnit;
    std::map<std::uint64_t, std::unique_ptr<Slab>> slabs_; // by address
    std::map<std::uint64_t, Allocation> allocations_;      // by address
};

} // namespace singularity::client
