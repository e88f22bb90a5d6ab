// SPDX-License-Identifier: GPL-2.0-or-later
// What a handler sees: the lanes that run, their registers and their memory. Included by files that are
// compiled for several instruction sets: whatever is inline here is always inlined, so that no copy made for
// a newer processor can be linked into code for an older one.
#pragma once

#include "engine/code.hpp"
#include "engine/engine.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace singularity::softgpu::engine {

// Generic addresses: no process has memory there.
inline constexpr std::uint64_t kWindowShift = 56;
inline constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << kWindowShift;
inline constexpr std::uint64_t kLocalWindow = std::uint64_t{2} << kWindowShift;
inline constexpr std::uint64_t kFunctionWindow = std::uint64_t{3} << kWindowShift;
inline constexpr std::uint64_t kWindowMask = kSharedWindow - 1;

// An access that other lanes may be spinning on costs as much of a time slice as this many operations.
inline constexpr std::int64_t kSpinCost = 200;

struct Warp;
struct BlockRun;
struct Group;
struct Frame;

// Thrown by handlers, caught by the block's runner, which adds where it happened.
struct LaneFault {
    FaultKind kind;
    unsigned lane;
    std::string text;
};
// Out of line: see above.
[[noreturn]] void raise_fault(FaultKind kind, unsigned lane, std::string text);
[[noreturn]] void raise_address_fault(FaultKind kind, unsigned lane, std::uint64_t address,
                                      std::uint64_t bytes, Place place, bool write);

inline constexpr std::size_t kRangeCache = 16;

struct Context {
    std::array<std::byte *, 2> bases{}; // the frame's rows, the function's constants
    std::uint32_t mask = 0;             // lanes that execute
    std::int64_t budget = 0;            // operations until somebody else gets a turn
    const Op *next = nullptr;
    const Op *ops = nullptr; // of the function
    std::byte *shared = nullptr;
    std::uint64_t shared_size = 0;
    std::byte *local = nullptr; // of lane 0
    std::uint64_t local_stride = 0;
    std::uint64_t local_base = 0; // of the activation, in every lane's stack
    const std::byte *parameters = nullptr;
    std::uint64_t parameters_size = 0;
    std::array<const Range *, kRangeCache> ranges{};
    const Ranges *memory = nullptr;
    const TextureObjects *textures = nullptr;
    Group *group = nullptr;
    Frame *frame = nullptr;
    const Code *code = nullptr;
    Warp *warp = nullptr;
    BlockRun *block = nullptr;
    std::int64_t spins = 0; // of the budget used in this slice: accesses that others may be waited for by
    std::int64_t mark = 0;  // budget and spins when operations were last counted
    std::int64_t spin_mark = 0;
    std::int64_t unspent = 0; // what was left of the budget when the group stopped
    bool stopped = false;
};

// An access that a lane of another group, warp or block may be waited for by.
[[gnu::always_inline]] inline void charge_spin(Context &context) {
    context.budget -= kSpinCost;
    context.spins += kSpinCost;
}

template <class T>
[[gnu::always_inline]] inline T *row(const Context &context, Ref ref) {
    return reinterpret_cast<T *>(
        __builtin_assume_aligned(context.bases[ref >> 31U] + (ref & ~kConstant), kRowAlignment));
}

// A predicate: one bit per lane.
[[gnu::always_inline]] inline std::uint32_t &predicate(const Context &context, Ref ref) {
    return *reinterpret_cast<std::uint32_t *>(context.bases[ref >> 31U] + (ref & ~kConstant));
}

[[gnu::always_inline]] inline void set_predicate(const Context &context, Ref ref, std::uint32_t bits) {
    std::uint32_t &value = predicate(context, ref);
    value = (value & ~context.mask) | (bits & context.mask);
}

// Host addresses of an access by every lane that executes, checked.
struct Access {
    std::array<std::byte *, kLanes> at;
    bool contiguous = false; // all 32 lanes, one right after the other
    bool uniform = false;    // all lanes at the same place
};
// bytes: of the whole access of one lane.
void resolve_general(Context &context, const Op &op, std::uint32_t bytes, bool write, Access &access);
// The host's address of [address of the lane + offset, and so many bytes on], checked.
[[nodiscard]] std::byte *resolve_lane(Context &context, const Op &op, unsigned lane, std::uint64_t offset,
                                      std::uint64_t bytes, std::uint64_t alignment, bool write);
// Likewise of a known address: what the operation adds to its row is in it.
[[nodiscard]] std::byte *resolve_address(Context &context, const Op &op, unsigned lane, std::uint64_t address,
                                         std::uint64_t bytes, std::uint64_t alignment, bool write);
// The range that holds [first, last], from the operation's cache if it can; nullptr: none.
[[nodiscard]] const Range *find_range(Context &context, const Op &op, std::uint64_t first,
                                      std::uint64_t last);

} // namespace singularity::softgpu::engine
