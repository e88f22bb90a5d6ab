// SPDX-License-Identifier: GPL-2.0-or-later
// Free and used ranges of addresses. Pure bookkeeping: nothing is mapped here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace singularity::client {

struct Range {
    std::uint64_t address = 0;
    std::uint64_t size = 0;

    [[nodiscard]] std::uint64_t end() const { return address + size; }
    [[nodiscard]] bool contains(std::uint64_t where, std::uint64_t bytes = 0) const {
        return where >= address && where - address <= size && bytes <= size - (where - address);
    }
};

[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

// Hands out parts of one range, lowest address first. Not safe for several threads.
class RangeAllocator {
  public:
    explicit RangeAllocator(Range whole) {
        if (whole.size != 0)
            free_.emplace(whole.address, whole.size);
    }

    // size: not 0. alignment: a power of two.
    [[nodiscard]] std::optional<std::uint64_t> allocate(std::uint64_t size, std::uint64_t alignment);
    // Exactly this range, if all of it is free.
    [[nodiscard]] bool allocate_at(Range range);
    // A range that was handed out, or a part of one.
    void release(Range range);
    [[nodiscard]] std::uint64_t free_bytes() const;

  private:
    void cut(std::map<std::uint64_t, std::uint64_t>::iterator piece, Range range);

    // Invariant: by address, disjoint, no two touch.
    std::map<std::uint64_t, std::uint64_t> free_;
};

// Things by the range of addresses they occupy; no two overlap.
template <class Thing>
class RangeMap {
  public:
    struct Entry {
        Range range;
        Thing thing;
    };

    void add(Range range, Thing thing) {
        entries_.insert_or_assign(range.address, Entry{range, std::move(thing)});
    }
    // The thing whose range holds the address.
    [[nodiscard]] Entry *find(std::uint64_t address) {
        auto after = entries_.upper_bound(address);
        if (after == entries_.begin())
            return nullptr;
        auto &entry = std::prev(after)->second;
        return address - entry.range.address < entry.range.size ? &entry : nullptr;
    }
    [[nodiscard]] Entry *find_exact(std::uint64_t address) {
        const auto found = entries_.find(address);
        return found == entries_.end() ? nullptr : &found->second;
    }
    void remove(std::uint64_t address) { entries_.erase(address); }
    template <class Condition>
    void remove_if(Condition condition) {
        std::erase_if(entries_, [&](const auto &item) { return condition(item.second.thing); });
    }
    [[nodiscard]] bool overlaps(Range range) const {
        const auto after = entries_.lower_bound(range.end());
        return after != entries_.begin() && std::prev(after)->second.range.end() > range.address;
    }
    [[nodiscard]] auto begin() { return entries_.begin(); }
    [[nodiscard]] auto end() { return entries_.end(); }
    [[nodiscard]] bool empty() const { return entries_.empty(); }

  private:
    std::map<std::uint64_t, Entry> entries_;
};

} // namespace singularity::client
