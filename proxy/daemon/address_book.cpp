// SPDX-License-Identifier: GPL-2.0-or-later
#include "address_book.hpp"

#include <bit>
#include <cerrno>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

bool inside(const channel::AddressRange &whole, std::uint64_t address, std::uint64_t size) {
    return address >= whole.address && size <= whole.size && address - whole.address <= whole.size - size;
}

} // namespace

bool AddressBook::in_window(std::uint64_t address, std::uint64_t size) const {
    return inside(window_, address, size);
}

Expected<void> AddressBook::add(const Range &range) {
    const auto refuse = [&range](std::string why) {
        return failure("map", fmt::format("{:#x}+{:#x}", range.address, range.size), std::move(why), EPROTO);
    };
    const auto &slice = range.kind == RangeKind::host ? host_ : device_;
    if (range.size == 0 || !inside(slice, range.address, range.size))
        return refuse(fmt::format("it is not in the session's window, which has such memory in {:#x}+{:#x}",
                                  slice.address, slice.size));
    const std::scoped_lock lock(lock_);
    const auto after = ranges_.lower_bound(range.address);
    if (after != ranges_.end() && after->first - range.address < range.size)
        return refuse(fmt::format("something is mapped at {:#x}", after->first));
    if (after != ranges_.begin()) {
        const auto &before = std::prev(after)->second;
        if (range.address - before.address < before.size)
            return refuse(fmt::format("something is mapped at {:#x}", before.address));
    }
    ranges_.emplace(range.address, range);
    return {};
}

bool AddressBook::has(const Range &range) const {
    const std::scoped_lock lock(lock_);
    const auto found = ranges_.find(range.address);
    return found != ranges_.end() && found->second.size == range.size && found->second.kind == range.kind;
}

bool AddressBook::remove(const Range &range) {
    const std::scoped_lock lock(lock_);
    const auto found = ranges_.find(range.address);
    if (found == ranges_.end() || found->second.size != range.size || found->second.kind != range.kind)
        return false;
    ranges_.erase(found);
    return true;
}

std::optional<Range> AddressBook::around(std::uint64_t address, std::uint64_t size) const {
    const std::scoped_lock lock(lock_);
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin())
        return std::nullopt;
    const auto &range = std::prev(after)->second;
    if (address - range.address > range.size || size > range.size - (address - range.address))
        return std::nullopt;
    return range;
}

bool AddressBook::reaches(std::uint64_t address, std::uint64_t size) const {
    return around(address, size).has_value() || knows_foreign(address, size);
}

bool AddressBook::reserved(std::uint64_t address, std::uint64_t size) const {
    const auto range = around(address, size);
    return range && range->kind == RangeKind::reservation;
}

void *AddressBook::host(std::uint64_t address, std::uint64_t size) const {
    const auto range = around(address, size);
    return range && range->kind == RangeKind::host ? std::bit_cast<void *>(address) : nullptr;
}

void AddressBook::remember_foreign(std::uint64_t address, std::uint64_t size, std::uint64_t library) {
    const std::scoped_lock lock(lock_);
    foreign_[address] = {.size = size, .library = library};
}

bool AddressBook::knows_foreign(std::uint64_t address, std::uint64_t size) const {
    const std::scoped_lock lock(lock_);
    const auto after = foreign_.upper_bound(address);
    if (after == foreign_.begin())
        return false;
    const auto &[start, foreign] = *std::prev(after);
    return address - start <= foreign.size && size <= foreign.size - (address - start);
}

void AddressBook::forget_foreign(std::uint64_t library) {
    const std::scoped_lock lock(lock_);
    std::erase_if(foreign_, [library](const auto &entry) {
        return entry.second.library == 0 || entry.second.library == library;
    });
}

std::vector<Range> AddressBook::all() const {
    const std::scoped_lock lock(lock_);
    std::vector<Range> found;
    for (const auto &[address, range] : ranges_)
        found.push_back(range);
    return found;
}

} // namespace singularity::proxyd
