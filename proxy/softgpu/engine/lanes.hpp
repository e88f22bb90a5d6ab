// SPDX-License-Identifier: GPL-2.0-or-later
// The loops over lanes. Only for files lanes_*.cpp, which are compiled once for each instruction set, each
// time in another namespace (SINGULARITY_LANES).
#pragma once

#include "engine/context.hpp"
#include "engine/handlers.hpp"
#include "ptx/ir.hpp"

#include <cstdint>
#include <type_traits>

#include <xmmintrin.h>

namespace singularity::softgpu::engine::SINGULARITY_LANES {

using ptx::Flag;
using ptx::Instruction;
using ptx::Opcode;
using ptx::Type;

template <class T>
using Container = std::conditional_t<sizeof(T) <= 4, std::uint32_t, std::uint64_t>;

// A value of type T out of its row, and back.
template <class T>
[[gnu::always_inline]] inline T unpack(Container<T> bits) {
    if constexpr (std::is_same_v<T, float>)
        return __builtin_bit_cast(float, bits);
    else if constexpr (std::is_same_v<T, double>)
        return __builtin_bit_cast(double, bits);
    else
        return static_cast<T>(bits);
}
template <class T>
[[gnu::always_inline]] inline Container<T> pack(T value) {
    if constexpr (std::is_same_v<T, float>)
        return __builtin_bit_cast(std::uint32_t, value);
    else if constexpr (std::is_same_v<T, double>)
        return __builtin_bit_cast(std::uint64_t, value);
    else
        return static_cast<Container<T>>(value);
}

// The destination may be one of the sources: lane i of the result only ever depends on lane i, which is what
// ivdep says. Lanes that do not execute are computed too and thrown away, so `lane` must not fail on
// anything.
template <class D, class F>
[[gnu::always_inline]] inline void each(Context &context, Ref destination, F lane) {
    D *out = row<D>(context, destination);
    const std::uint32_t mask = context.mask;
    if (mask == kAllLanes) {
#pragma GCC ivdep
        for (unsigned i = 0; i < kLanes; ++i)
            out[i] = lane(i);
    } else {
#pragma GCC ivdep
        for (unsigned i = 0; i < kLanes; ++i) {
            const D value = lane(i);
            out[i] = (mask & (1U << i)) != 0 ? value : out[i];
        }
    }
}

// Bits of the lanes for which `lane` is true.
template <class F>
[[gnu::always_inline]] inline std::uint32_t gather_bits(F lane) {
    std::uint32_t bits = 0;
    for (unsigned i = 0; i < kLanes; ++i)
        bits |= lane(i) ? 1U << i : 0U;
    return bits;
}

template <class T, auto F>
void unary(Context &context, const Op &op) {
    using C = Container<T>;
    const C *a = row<C>(context, op.o[1]);
    each<C>(context, op.o[0], [=](unsigned i) { return pack<T>(F(unpack<T>(a[i]))); });
}

template <class T, auto F>
void binary(Context &context, const Op &op) {
    using C = Container<T>;
    const C *a = row<C>(context, op.o[1]);
    const C *b = row<C>(context, op.o[2]);
    each<C>(context, op.o[0], [=](unsigned i) { return pack<T>(F(unpack<T>(a[i]), unpack<T>(b[i]))); });
}

template <class T, auto F>
void ternary(Context &context, const Op &op) {
    using C = Container<T>;
    const C *a = row<C>(context, op.o[1]);
    const C *b = row<C>(context, op.o[2]);
    const C *c = row<C>(context, op.o[3]);
    each<C>(context, op.o[0],
            [=](unsigned i) { return pack<T>(F(unpack<T>(a[i]), unpack<T>(b[i]), unpack<T>(c[i]))); });
}

// The host's rounding mode for one operation. The rows are memory, so no load or store of them, and so no
// arithmetic on them, moves across the barriers.
class HostRounding {
  public:
    [[gnu::always_inline]] explicit HostRounding(std::uint8_t rounding) {
        if (rounding == 0) [[likely]]
            return;
        saved_ = _mm_getcsr();
        changed_ = true;
        _mm_setcsr((saved_ & ~0x6000U) | control(rounding));
        __asm__ volatile("" ::: "memory");
    }
    [[gnu::always_inline]] ~HostRounding() {
        if (!changed_) [[likely]]
            return;
        __asm__ volatile("" ::: "memory");
        _mm_setcsr(saved_);
    }
    HostRounding(const HostRounding &) = delete;
    HostRounding &operator=(const HostRounding &) = delete;

  private:
    [[gnu::always_inline]] static unsigned control(std::uint8_t rounding) {
        switch (static_cast<ptx::Rounding>(rounding)) {
        case ptx::Rounding::rm:
            return 0x2000U;
        case ptx::Rounding::rp:
            return 0x4000U;
        case ptx::Rounding::rz:
            return 0x6000U;
        default:
            return 0;
        }
    }
    unsigned saved_ = 0;
    bool changed_ = false;
};

// Calls g.operator()<T>() with the C++ type of an integer (or bit) type; nullptr for another.
template <class G>
Handler by_integer(Type type, G g) {
    switch (type) {
    case Type::u16:
    case Type::b16:
        return g.template operator()<std::uint16_t>();
    case Type::s16:
        return g.template operator()<std::int16_t>();
    case Type::u32:
    case Type::b32:
        return g.template operator()<std::uint32_t>();
    case Type::s32:
        return g.template operator()<std::int32_t>();
    case Type::u64:
    case Type::b64:
        return g.template operator()<std::uint64_t>();
    case Type::s64:
        return g.template operator()<std::int64_t>();
    default:
        return nullptr;
    }
}

// The same for bit patterns: b16, b32, b64 and whatever has their size.
template <class G>
Handler by_size(Type type, G g) {
    switch (ptx::type_size(type)) {
    case 1:
    case 2:
        return g.template operator()<std::uint16_t>();
    case 4:
        return g.template operator()<std::uint32_t>();
    case 8:
        return g.template operator()<std::uint64_t>();
    default:
        return nullptr;
    }
}

} // namespace singularity::softgpu::engine::SINGULARITY_LANES
