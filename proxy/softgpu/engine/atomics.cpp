// SPDX-License-Identifier: GPL-2.0-or-later
// atom and red. Lanes act in their order. The host's atomics are used whatever runs: another launch, or the
// host itself, may work on the same memory.
#include "engine/context.hpp"
#include "engine/handlers.hpp"
#include "engine/small_floats.hpp"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

namespace singularity::softgpu::engine {

namespace {

using ptx::Instruction;
using ptx::Operation;
using ptx::Type;

// F(old, operand) is what comes into memory; gives what was there.
template <class T, auto F>
T replace(std::byte *at, T operand) {
    const std::atomic_ref<T> place(*reinterpret_cast<T *>(at));
    T old = place.load(std::memory_order_relaxed);
    while (!place.compare_exchange_weak(old, F(old, operand)))
        ;
    return old;
}

template <class T>
T exchange(T, T operand) {
    return operand;
}
template <class T>
T add(T old, T operand) {
    return static_cast<T>(old + operand);
}
template <class T>
T bit_and(T old, T operand) {
    return old & operand;
}
template <class T>
T bit_or(T old, T operand) {
    return old | operand;
}
template <class T>
T bit_xor(T old, T operand) {
    return old ^ operand;
}
template <class T>
T least(T old, T operand) {
    return operand < old ? operand : old;
}
template <class T>
T greatest(T old, T operand) {
    return old < operand ? operand : old;
}
template <class T>
T increment(T old, T operand) {
    return old >= operand ? 0 : static_cast<T>(old + 1);
}
template <class T>
T decrement(T old, T operand) {
    return old == 0 || old > operand ? operand : static_cast<T>(old - 1);
}

// Floating-point sums, as bits. atom.add.f32 on global memory flushes subnormals, PTX ISA says; on shared
// memory it does not.
template <bool Flush>
std::uint32_t add_f32(std::uint32_t old, std::uint32_t operand) {
    const auto flushed = [](std::uint32_t bits) {
        return std::bit_cast<float>(Flush && (bits & 0x7F800000U) == 0 ? bits & 0x80000000U : bits);
    };
    const float sum = flushed(old) + flushed(operand);
    if (sum != sum)
        return 0x7FFFFFFFU;
    return std::bit_cast<std::uint32_t>(flushed(std::bit_cast<std::uint32_t>(sum)));
}
std::uint64_t add_f64(std::uint64_t old, std::uint64_t operand) {
    const double sum = std::bit_cast<double>(old) + std::bit_cast<double>(operand);
    return sum == sum ? std::bit_cast<std::uint64_t>(sum) : 0x7FFFFFFFFFFFFFFFULL;
}
template <class Format, Operation What>
std::uint16_t combine_half(std::uint16_t old, std::uint16_t operand) {
    const double a = Format::to_double(old);
    const double b = Format::to_double(operand);
    if (What == Operation::add)
        return static_cast<std::uint16_t>(Format::from_double(a + b));
    if (a != a || b != b)
        return a != a && b != b ? std::uint16_t{0x7FFF} : a != a ? operand : old;
    const bool first =
        What == Operation::max ? a > b || (a == b && !std::signbit(a)) : a < b || (a == b && std::signbit(a));
    return first ? old : operand;
}
template <class Format, Operation What>
std::uint32_t combine_pair(std::uint32_t old, std::uint32_t operand) {
    const std::uint32_t low =
        combine_half<Format, What>(static_cast<std::uint16_t>(old), static_cast<std::uint16_t>(operand));
    const std::uint32_t high = combine_half<Format, What>(static_cast<std::uint16_t>(old >> 16U),
                                                          static_cast<std::uint16_t>(operand >> 16U));
    return low | (high << 16U);
}

template <class T>
using Row = std::conditional_t<(sizeof(T) <= 4), std::uint32_t, std::uint64_t>;

// The rows of values and results of a tuple, or of the one operand.
struct AtomicOperands {
    const Ref *values;
    const Ref *results;
};
AtomicOperands operands_of(const Context &context, const Op &op) {
    if (op.count == 1)
        return {&op.o[1], &op.o[0]};
    const Ref *rows = context.code->extra.data() + op.extra;
    return {rows, rows + op.count};
}

template <class T, auto F>
void atomic(Context &context, const Op &op) {
    charge_spin(context);
    Access access;
    resolve_general(context, op, static_cast<std::uint32_t>(sizeof(T) * op.count), true, access);
    const AtomicOperands operands = operands_of(context, op);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        if ((context.mask & (1U << lane)) == 0)
            continue;
        for (unsigned k = 0; k < op.count; ++k) {
            const auto value = static_cast<T>(row<Row<T>>(context, operands.values[k])[lane]);
            const T old = replace<T, F>(access.at[lane] + k * sizeof(T), value);
            if (operands.results[k] != kAbsent)
                row<Row<T>>(context, operands.results[k])[lane] = static_cast<Row<T>>(old);
        }
    }
}

template <class T>
void compare_and_swap(Context &context, const Op &op) {
    charge_spin(context);
    Access access;
    resolve_general(context, op, sizeof(T), true, access);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        if ((context.mask & (1U << lane)) == 0)
            continue;
        auto expected = static_cast<T>(row<Row<T>>(context, op.o[1])[lane]);
        const auto wanted = static_cast<T>(row<Row<T>>(context, op.o[2])[lane]);
        std::atomic_ref<T>(*reinterpret_cast<T *>(access.at[lane])).compare_exchange_strong(expected, wanted);
        if (op.o[0] != kAbsent)
            row<Row<T>>(context, op.o[0])[lane] = static_cast<Row<T>>(expected);
    }
}

// 16 bytes: under one lock, for no host has an atomic of that size that reads memory it may not write.
std::atomic_flag wide_lock = ATOMIC_FLAG_INIT;
template <bool Compare>
void wide(Context &context, const Op &op) {
    charge_spin(context);
    using Wide = Unsigned128;
    Access access;
    resolve_general(context, op, sizeof(Wide), true, access);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        if ((context.mask & (1U << lane)) == 0)
            continue;
        while (wide_lock.test_and_set(std::memory_order_acquire))
            ;
        Wide old = 0;
        std::memcpy(&old, access.at[lane], sizeof(old));
        const Wide first = row<Wide>(context, op.o[1])[lane];
        if (!Compare)
            std::memcpy(access.at[lane], &first, sizeof(first));
        else if (old == first)
            std::memcpy(access.at[lane], row<Wide>(context, op.o[2]) + lane, sizeof(old));
        wide_lock.clear(std::memory_order_release);
        if (op.o[0] != kAbsent)
            row<Wide>(context, op.o[0])[lane] = old;
    }
}

template <class T>
Handler integer(Operation operation) {
    using U = std::make_unsigned_t<T>;
    switch (operation) {
    case Operation::add:
        return atomic<U, add<U>>;
    case Operation::min:
        return atomic<T, least<T>>;
    case Operation::max:
        return atomic<T, greatest<T>>;
    case Operation::and_:
        return atomic<U, bit_and<U>>;
    case Operation::or_:
        return atomic<U, bit_or<U>>;
    case Operation::xor_:
        return atomic<U, bit_xor<U>>;
    case Operation::exch:
        return atomic<U, exchange<U>>;
    case Operation::inc:
        return atomic<U, increment<U>>;
    case Operation::dec:
        return atomic<U, decrement<U>>;
    case Operation::cas:
        return compare_and_swap<U>;
    default:
        return nullptr;
    }
}

template <class Format>
Handler half(Operation operation, bool pair) {
    switch (operation) {
    case Operation::add:
        return pair ? atomic<std::uint32_t, combine_pair<Format, Operation::add>>
                    : atomic<std::uint16_t, combine_half<Format, Operation::add>>;
    case Operation::min:
        return pair ? atomic<std::uint32_t, combine_pair<Format, Operation::min>>
                    : atomic<std::uint16_t, combine_half<Format, Operation::min>>;
    case Operation::max:
        return pair ? atomic<std::uint32_t, combine_pair<Format, Operation::max>>
                    : atomic<std::uint16_t, combine_half<Format, Operation::max>>;
    default:
        return nullptr;
    }
}

} // namespace

Handler select_atomic(const Instruction &instruction) {
    const Operation operation = instruction.operation;
    const bool shared =
        instruction.spaces[0] == ptx::Space::shared || instruction.spaces[0] == ptx::Space::shared_cta;
    switch (instruction.types[0]) {
    case Type::b16:
    case Type::u16:
        return integer<std::uint16_t>(operation);
    case Type::s16:
        return integer<std::int16_t>(operation);
    case Type::u32:
    case Type::b32:
        return integer<std::uint32_t>(operation);
    case Type::s32:
        return integer<std::int32_t>(operation);
    case Type::u64:
    case Type::b64:
        return integer<std::uint64_t>(operation);
    case Type::s64:
        return integer<std::int64_t>(operation);
    case Type::b128:
        if (operation == Operation::exch)
            return wide<false>;
        return operation == Operation::cas ? wide<true> : nullptr;
    case Type::f32:
        if (operation != Operation::add)
            return nullptr;
        return shared ? atomic<std::uint32_t, add_f32<false>> : atomic<std::uint32_t, add_f32<true>>;
    case Type::f64:
        return operation == Operation::add ? atomic<std::uint64_t, add_f64> : nullptr;
    case Type::f16:
        return half<SmallFloat<5, 10>>(operation, false);
    case Type::f16x2:
        return half<SmallFloat<5, 10>>(operation, true);
    case Type::bf16:
        return half<SmallFloat<8, 7>>(operation, false);
    case Type::bf16x2:
        return half<SmallFloat<8, 7>>(operation, true);
    default:
        return nullptr;
    }
}

} // namespace singularity::softgpu::engine
