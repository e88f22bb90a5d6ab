// SPDX-License-Identifier: GPL-2.0-or-later
// Ranges, and the accesses that do not fit the fast ways of lanes_memory.cpp.
#include "engine/block.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace singularity::softgpu {

Ranges::Ranges(std::vector<Range> ranges) : ranges_(std::move(ranges)) {
    std::ranges::sort(ranges_, {}, &Range::begin);
}

const Range *Ranges::find(std::uint64_t address) const {
    const auto after = std::ranges::upper_bound(ranges_, address, {}, &Range::begin);
    if (after == ranges_.begin())
        return nullptr;
    const Range &range = *std::prev(after);
    return address < range.end ? &range : nullptr;
}

std::vector<Range> Ranges::with(const Range &more) const {
    std::vector<Range> all = ranges_;
    all.push_back(more);
    return all;
}

} // namespace singularity::softgpu

namespace singularity::softgpu::engine {

void raise_fault(FaultKind kind, unsigned lane, std::string text) {
    throw LaneFault{kind, lane, std::move(text)};
}

namespace {

std::string_view place_name(Place place) {
    switch (place) {
    case Place::shared:
        return "shared";
    case Place::local:
    case Place::frame:
        return "local";
    case Place::parameter:
        return "param";
    default:
        return "global";
    }
}

} // namespace

void raise_address_fault(FaultKind kind, unsigned lane, std::uint64_t address, std::uint64_t bytes,
                         Place place, bool write) {
    const std::string_view what = kind == FaultKind::misaligned_address ? "is not a multiple of the size"
                                                                        : "is outside of what was allocated";
    raise_fault(kind, lane,
                fmt::format("{} of {} bytes at {} address {:#x}, which {}", write ? "write" : "read", bytes,
                            place_name(place), address, what));
}

const Range *find_range(Context &context, const Op &op, std::uint64_t first, std::uint64_t last) {
    const Range *&cached = context.ranges[(reinterpret_cast<std::uintptr_t>(&op) / sizeof(Op)) % kRangeCache];
    if (cached != nullptr && first >= cached->begin && last < cached->end) [[likely]]
        return cached;
    const Range *range = context.memory->find(first);
    if (range == nullptr || last >= range->end)
        return nullptr;
    return cached = range;
}

std::byte *resolve_lane(Context &context, const Op &op, unsigned lane, std::uint64_t offset,
                        std::uint64_t bytes, std::uint64_t alignment, bool write) {
    std::uint64_t address = op.immediate + offset;
    if (op.base == Base::row64)
        address += row<std::uint64_t>(context, op.o[5])[lane];
    else if (op.base == Base::row32)
        address = static_cast<std::uint32_t>(address + row<std::uint32_t>(context, op.o[5])[lane]);
    return resolve_address(context, op, lane, address, bytes, alignment, write);
}

std::byte *resolve_address(Context &context, const Op &op, unsigned lane, std::uint64_t address,
                           std::uint64_t bytes, std::uint64_t alignment, bool write) {
    Place place = op.place;
    if (place == Place::generic) {
        const std::uint64_t window = address & ~kWindowMask;
        place = window == kSharedWindow  ? Place::shared
                : window == kLocalWindow ? Place::local
                                         : Place::global;
        if (place != Place::global)
            address &= kWindowMask;
    } else if (place == Place::frame) {
        address += context.local_base;
    }
    if (address % alignment != 0)
        raise_address_fault(FaultKind::misaligned_address, lane, address, bytes, place, write);
    std::byte *host = nullptr;
    switch (place) {
    case Place::shared:
        if (address < context.shared_size && bytes <= context.shared_size - address)
            host = context.shared + address;
        break;
    case Place::local:
    case Place::frame:
        if (address < context.local_stride && bytes <= context.local_stride - address)
            host = context.local + lane * context.local_stride + address;
        break;
    default: {
        const Range *range = find_range(context, op, address, address + bytes - 1);
        const auto parameters = reinterpret_cast<std::uintptr_t>(context.parameters);
        const bool parameter = address - parameters < context.parameters_size &&
                               bytes <= context.parameters_size - (address - parameters);
        if ((range != nullptr && (range->writable || !write)) || (parameter && !write))
            host = reinterpret_cast<std::byte *>(address); // NOLINT: an address of this process
        break;
    }
    }
    if (host == nullptr)
        raise_address_fault(FaultKind::illegal_address, lane, address, bytes, place, write);
    return host;
}

void resolve_general(Context &context, const Op &op, std::uint32_t bytes, bool write, Access &access) {
    access.contiguous = false;
    access.uniform = false;
    std::byte *any = nullptr;
    for (unsigned lane = 0; lane < kLanes; ++lane)
        if ((context.mask & (1U << lane)) != 0)
            any = access.at[lane] = resolve_lane(context, op, lane, 0, bytes, bytes, write);
    for (unsigned lane = 0; lane < kLanes; ++lane)
        if ((context.mask & (1U << lane)) == 0)
            access.at[lane] = any;
}

} // namespace singularity::softgpu::engine
