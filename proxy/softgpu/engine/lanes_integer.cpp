// SPDX-License-Identifier: GPL-2.0-or-later
// Integer arithmetic. What a division by zero gives is not said by the ISA: what NVIDIA's devices give.
#include "engine/lanes.hpp"

#include <limits>

namespace singularity::softgpu::engine::SINGULARITY_LANES {

namespace {

using std::int16_t;
using std::int32_t;
using std::int64_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;

template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <std::size_t Bytes>
struct Integer;
template <>
struct Integer<2> {
    using Signed = int16_t;
    using Wide = int32_t;
};
template <>
struct Integer<4> {
    using Signed = int32_t;
    using Wide = int64_t;
};
template <>
struct Integer<8> {
    using Signed = int64_t;
    using Wide = Signed128;
};
template <class T>
using Wide = std::conditional_t<
    std::is_signed_v<T>, typename Integer<sizeof(T)>::Wide,
    std::conditional_t<sizeof(T) == 2, uint32_t, std::conditional_t<sizeof(T) == 4, uint64_t, Unsigned128>>>;

// Arithmetic of types narrower than int would be done in int, where products overflow.
template <class T>
using Ring = std::conditional_t<(sizeof(T) < 4), uint32_t, Unsigned<T>>;

template <class T>
[[gnu::always_inline]] inline T add(T a, T b) {
    return static_cast<T>(static_cast<Ring<T>>(a) + static_cast<Ring<T>>(b));
}
template <class T>
[[gnu::always_inline]] inline T subtract(T a, T b) {
    return static_cast<T>(static_cast<Ring<T>>(a) - static_cast<Ring<T>>(b));
}
template <class T>
[[gnu::always_inline]] inline T product_low(T a, T b) {
    return static_cast<T>(static_cast<Ring<T>>(a) * static_cast<Ring<T>>(b));
}
template <class T>
[[gnu::always_inline]] inline T product_high(T a, T b) {
    return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> (8 * sizeof(T)));
}
template <class T>
[[gnu::always_inline]] inline T divide(T a, T b) {
    if (b == 0)
        return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1))
        return subtract<T>(0, a); // the one quotient that overflows
    return static_cast<T>(a / b);
}
template <class T>
[[gnu::always_inline]] inline T remainder(T a, T b) {
    if (b == 0)
        return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1))
        return 0;
    return static_cast<T>(a % b);
}
template <class T>
[[gnu::always_inline]] inline T least(T a, T b) {
    return a < b ? a : b;
}
template <class T>
[[gnu::always_inline]] inline T greatest(T a, T b) {
    return a < b ? b : a;
}
[[gnu::always_inline]] inline int32_t saturate(int64_t value) {
    constexpr int64_t low = std::numeric_limits<int32_t>::min();
    constexpr int64_t high = std::numeric_limits<int32_t>::max();
    return static_cast<int32_t>(value < low ? low : value > high ? high : value);
}
template <class T>
[[gnu::always_inline]] inline T distance(T a, T b) {
    return a < b ? subtract(b, a) : subtract(a, b);
}
template <class T>
[[gnu::always_inline]] inline T absolute(T a) {
    return a < 0 ? subtract<T>(0, a) : a;
}

// Two values of 16 bits in one of 32.
template <class T, auto F>
[[gnu::always_inline]] inline uint32_t pairwise(uint32_t a, uint32_t b) {
    const auto low = static_cast<uint16_t>(F(static_cast<T>(a), static_cast<T>(b)));
    const auto high = static_cast<uint16_t>(F(static_cast<T>(a >> 16U), static_cast<T>(b >> 16U)));
    return static_cast<uint32_t>(low) | (static_cast<uint32_t>(high) << 16U);
}
template <auto S, auto U>
Handler pair_handler(Type type) {
    if (type == Type::s16x2)
        return binary<uint32_t, pairwise<int16_t, S>>;
    if (type == Type::u16x2)
        return binary<uint32_t, pairwise<uint16_t, U>>;
    return nullptr;
}
template <class T>
[[gnu::always_inline]] inline T least_relu(T a, T b) {
    return greatest<T>(least(a, b), 0);
}
template <class T>
[[gnu::always_inline]] inline T greatest_relu(T a, T b) {
    return greatest<T>(greatest(a, b), 0);
}

// Carries: one bit per lane, in the predicate Op::extra of the frame. Written if mode & 1; read if mode & 2.
template <class T, bool Subtract>
void add_with_carry(Context &context, const Op &op) {
    using C = Container<T>;
    const C *a = row<C>(context, op.o[1]);
    const C *b = row<C>(context, op.o[2]);
    const uint32_t in = (op.mode & 2U) != 0 ? predicate(context, op.extra) : 0;
    C sums[kLanes];
    uint32_t carries = 0;
    for (unsigned i = 0; i < kLanes; ++i) {
        const C carry = (in >> i) & 1U;
        if (Subtract) { // the carry is the borrow
            const C first = a[i] - b[i];
            sums[i] = first - carry;
            carries |= (a[i] < b[i] || first < carry) ? 1U << i : 0U;
        } else {
            const C first = a[i] + b[i];
            sums[i] = first + carry;
            carries |= (first < a[i] || sums[i] < first) ? 1U << i : 0U;
        }
    }
    each<C>(context, op.o[0], [&](unsigned i) { return sums[i]; });
    if ((op.mode & 1U) != 0)
        set_predicate(context, op.extra, carries);
}

template <class T, bool High>
void multiply_with_carry(Context &context, const Op &op) {
    using C = Container<T>;
    const C *a = row<C>(context, op.o[1]);
    const C *b = row<C>(context, op.o[2]);
    const C *c = row<C>(context, op.o[3]);
    const uint32_t in = (op.mode & 2U) != 0 ? predicate(context, op.extra) : 0;
    C sums[kLanes];
    uint32_t carries = 0;
    for (unsigned i = 0; i < kLanes; ++i) {
        const C carry = (in >> i) & 1U;
        const T left = unpack<T>(a[i]);
        const T right = unpack<T>(b[i]);
        const C part = pack<T>(High ? product_high(left, right) : product_low(left, right));
        const C first = part + c[i];
        sums[i] = first + carry;
        carries |= (first < part || sums[i] < first) ? 1U << i : 0U;
    }
    each<C>(context, op.o[0], [&](unsigned i) { return sums[i]; });
    if ((op.mode & 1U) != 0)
        set_predicate(context, op.extra, carries);
}

// T -> a type twice as wide; the addend is as wide as the result.
template <class T, bool Add>
void multiply_wide(Context &context, const Op &op) {
    using W = std::conditional_t<std::is_signed_v<T>, std::conditional_t<sizeof(T) == 2, int32_t, int64_t>,
                                 std::conditional_t<sizeof(T) == 2, uint32_t, uint64_t>>;
    using U = Unsigned<W>;
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const U *c = Add ? row<U>(context, op.o[3]) : nullptr;
    each<U>(context, op.o[0], [=](unsigned i) {
        const U product = static_cast<U>(static_cast<U>(static_cast<W>(unpack<T>(a[i]))) *
                                         static_cast<U>(static_cast<W>(unpack<T>(b[i]))));
        if constexpr (Add)
            return static_cast<U>(product + c[i]);
        else
            return product;
    });
}

template <class T, bool High>
[[gnu::always_inline]] inline T product_24(T a, T b) {
    const auto left = static_cast<int64_t>(std::is_signed_v<T> ? static_cast<int32_t>(a << 8U) >> 8
                                                               : static_cast<int64_t>(a & 0xFFFFFF));
    const auto right = static_cast<int64_t>(std::is_signed_v<T> ? static_cast<int32_t>(b << 8U) >> 8
                                                                : static_cast<int64_t>(b & 0xFFFFFF));
    const int64_t product = left * right;
    return static_cast<T>(High ? product >> 16 : product);
}

template <class From>
void count_bits(Context &context, const Op &op) {
    using C = Container<From>;
    const C *a = row<C>(context, op.o[1]);
    each<uint32_t>(context, op.o[0],
                   [=](unsigned i) { return static_cast<uint32_t>(__builtin_popcountll(a[i])); });
}

template <class From>
[[gnu::always_inline]] inline uint32_t leading_zeros(From value) {
    constexpr uint32_t bits = 8 * sizeof(From);
    return value == 0 ? bits : static_cast<uint32_t>(__builtin_clzll(value)) - (64 - bits);
}
template <class From>
void count_leading_zeros(Context &context, const Op &op) {
    using C = Container<From>;
    const C *a = row<C>(context, op.o[1]);
    each<uint32_t>(context, op.o[0], [=](unsigned i) { return leading_zeros<From>(unpack<From>(a[i])); });
}

// The highest bit that is not a copy of the sign; all ones if there is none.
template <class T, bool Shift>
void find_bit(Context &context, const Op &op) {
    using C = Container<T>;
    using U = Unsigned<T>;
    const C *a = row<C>(context, op.o[1]);
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        const T value = unpack<T>(a[i]);
        const U bits = static_cast<U>(value < 0 ? ~value : value);
        const uint32_t zeros = leading_zeros<U>(bits);
        constexpr uint32_t width = 8 * sizeof(T);
        if (zeros == width)
            return UINT32_MAX;
        return Shift ? zeros : width - 1 - zeros;
    });
}

template <class T>
[[gnu::always_inline]] inline T reversed(T value) {
    uint64_t x = sizeof(T) == 8 ? value : static_cast<uint64_t>(value) << 32U;
    x = __builtin_bswap64(x);
    x = ((x & 0x0F0F0F0F0F0F0F0FULL) << 4U) | ((x >> 4U) & 0x0F0F0F0F0F0F0F0FULL);
    x = ((x & 0x3333333333333333ULL) << 2U) | ((x >> 2U) & 0x3333333333333333ULL);
    x = ((x & 0x5555555555555555ULL) << 1U) | ((x >> 1U) & 0x5555555555555555ULL);
    return static_cast<T>(x);
}

// PTX ISA, bfe: bits beyond the value are copies of the sign of the field, or zero.
template <class T>
void extract_field(Context &context, const Op &op) {
    using C = Container<T>;
    constexpr uint32_t top = 8 * sizeof(T) - 1;
    const C *a = row<C>(context, op.o[1]);
    const uint32_t *position = row<uint32_t>(context, op.o[2]);
    const uint32_t *length = row<uint32_t>(context, op.o[3]);
    each<C>(context, op.o[0], [=](unsigned i) {
        const uint32_t at = position[i] & 0xFFU;
        const uint32_t size = length[i] & 0xFFU;
        const uint32_t sign_at = at + size - 1 < top ? at + size - 1 : top;
        const bool sign = std::is_signed_v<T> && size != 0 && ((a[i] >> sign_at) & 1U) != 0;
        const C shifted = at <= top ? static_cast<C>(a[i] >> at) : 0;
        const C field_mask = size > top ? ~C{0} : static_cast<C>((C{1} << size) - 1);
        C value = shifted & field_mask;
        if (sign) {
            const uint32_t present = at > top ? 0 : (top + 1 - at < size ? top + 1 - at : size);
            value |= present > top ? C{0} : static_cast<C>(~C{0} << present);
        }
        return value;
    });
}

template <class C>
void insert_field(Context &context, const Op &op) {
    constexpr uint32_t width = 8 * sizeof(C);
    const C *a = row<C>(context, op.o[1]);
    const C *b = row<C>(context, op.o[2]);
    const uint32_t *position = row<uint32_t>(context, op.o[3]);
    const uint32_t *length = row<uint32_t>(context, op.o[4]);
    each<C>(context, op.o[0], [=](unsigned i) {
        const uint32_t at = position[i] & 0xFFU;
        const uint32_t size = length[i] & 0xFFU;
        if (at >= width || size == 0)
            return b[i];
        const C ones = size >= width ? ~C{0} : static_cast<C>((C{1} << size) - 1);
        const C field = static_cast<C>(ones << at);
        return static_cast<C>((b[i] & ~field) | ((a[i] << at) & field));
    });
}

// Bytes of a 32-bit word, signed or not.
template <class T>
[[gnu::always_inline]] inline int32_t byte_of(uint32_t word, unsigned index) {
    return static_cast<T>(word >> (8 * index));
}
template <class A, class B>
void dot4(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const uint32_t *c = row<uint32_t>(context, op.o[3]);
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        uint32_t sum = c[i];
        for (unsigned k = 0; k < 4; ++k)
            sum += static_cast<uint32_t>(byte_of<A>(a[i], k) * byte_of<B>(b[i], k));
        return sum;
    });
}
template <class A, class B, bool High>
void dot2(Context &context, const Op &op) {
    using A16 = std::conditional_t<std::is_signed_v<A>, int16_t, uint16_t>;
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const uint32_t *c = row<uint32_t>(context, op.o[3]);
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        const auto low = static_cast<int32_t>(static_cast<A16>(a[i]));
        const auto high = static_cast<int32_t>(static_cast<A16>(a[i] >> 16U));
        return c[i] + static_cast<uint32_t>(low * byte_of<B>(b[i], High ? 2 : 0)) +
               static_cast<uint32_t>(high * byte_of<B>(b[i], High ? 3 : 1));
    });
}

// The position of the n-th set bit from a base, n < 0: downwards (PTX ISA, fns).
[[gnu::always_inline]] inline uint32_t nth_bit(uint32_t mask, uint32_t base, uint32_t offset) {
    const auto n = static_cast<int32_t>(offset);
    int32_t count = n >= 0 ? n : -n;
    int32_t at = static_cast<int32_t>(base);
    if (n == 0)
        return base < 32 && ((mask >> base) & 1U) != 0 ? base : UINT32_MAX;
    const int32_t step = n > 0 ? 1 : -1;
    for (; at >= 0 && at < 32; at += step)
        if (((mask >> static_cast<unsigned>(at)) & 1U) != 0 && --count == 0)
            return static_cast<uint32_t>(at);
    return UINT32_MAX;
}

[[gnu::always_inline]] inline uint32_t bit_mask(uint32_t at, uint32_t size, bool clamp) {
    const uint32_t first = clamp ? (at > 32 ? 32 : at) : at & 31U;
    const uint32_t length = clamp ? (size > 32 ? 32 : size) : size & 31U;
    const uint64_t ones = (uint64_t{1} << length) - 1;
    return static_cast<uint32_t>(ones << first);
}

template <bool Clamp, bool Signed>
[[gnu::always_inline]] inline uint32_t extended(uint32_t value, uint32_t size) {
    const uint32_t bits = Clamp ? (size > 32 ? 32 : size) : size & 31U;
    if (bits == 0)
        return 0;
    const uint32_t shift = 32 - bits;
    return Signed ? static_cast<uint32_t>(static_cast<int32_t>(value << shift) >> shift)
                  : (value << shift) >> shift;
}

Handler select_product(const Instruction &instruction) {
    const Type type = instruction.types[0];
    const bool addend = instruction.opcode != Opcode::mul;
    if (instruction.mode == ptx::Mode::wide) {
        switch (type) {
        case Type::u16:
            return addend ? multiply_wide<uint16_t, true> : multiply_wide<uint16_t, false>;
        case Type::s16:
            return addend ? multiply_wide<int16_t, true> : multiply_wide<int16_t, false>;
        case Type::u32:
            return addend ? multiply_wide<uint32_t, true> : multiply_wide<uint32_t, false>;
        case Type::s32:
            return addend ? multiply_wide<int32_t, true> : multiply_wide<int32_t, false>;
        default:
            return nullptr;
        }
    }
    const bool high = instruction.mode == ptx::Mode::hi;
    if (!high && instruction.mode != ptx::Mode::lo)
        return nullptr;
    if (instruction.opcode == Opcode::madc || instruction.has(Flag::cc))
        return by_integer(type, [=]<class T>() -> Handler {
            if constexpr (sizeof(T) >= 4)
                return high ? multiply_with_carry<T, true> : multiply_with_carry<T, false>;
            return nullptr;
        });
    if (instruction.has(Flag::sat))
        return ternary<int32_t, [](int32_t a, int32_t b, int32_t c) {
            return saturate(static_cast<int64_t>(product_high(a, b)) + c);
        }>;
    return by_integer(type, [=]<class T>() -> Handler {
        if (!addend)
            return high ? binary<T, product_high<T>> : binary<T, product_low<T>>;
        return high ? ternary<T, [](T a, T b, T c) { return add(product_high(a, b), c); }>
                    : ternary<T, [](T a, T b, T c) { return add(product_low(a, b), c); }>;
    });
}

Handler select_sum(const Instruction &instruction) {
    const Type type = instruction.types[0];
    const bool subtraction = instruction.opcode == Opcode::sub || instruction.opcode == Opcode::subc;
    if (instruction.opcode == Opcode::addc || instruction.opcode == Opcode::subc || instruction.has(Flag::cc))
        return by_integer(type, [=]<class T>() -> Handler {
            using U = Unsigned<T>;
            if constexpr (sizeof(T) >= 4)
                return subtraction ? add_with_carry<U, true> : add_with_carry<U, false>;
            return nullptr;
        });
    if (type == Type::u16x2 || type == Type::s16x2)
        return subtraction ? nullptr : pair_handler<add<int16_t>, add<uint16_t>>(type);
    if (instruction.has(Flag::sat))
        return subtraction
                   ? binary<int32_t,
                            [](int32_t a, int32_t b) { return saturate(static_cast<int64_t>(a) - b); }>
                   : binary<int32_t,
                            [](int32_t a, int32_t b) { return saturate(static_cast<int64_t>(a) + b); }>;
    return by_integer(type, [=]<class T>() -> Handler {
        using U = Unsigned<T>;
        return subtraction ? binary<U, subtract<U>> : binary<U, add<U>>;
    });
}

Handler select_extreme(const Instruction &instruction) {
    const Type type = instruction.types[0];
    const bool smallest = instruction.opcode == Opcode::min;
    if (instruction.has(Flag::relu)) {
        if (type == Type::s16x2)
            return smallest ? binary<uint32_t, pairwise<int16_t, least_relu<int16_t>>>
                            : binary<uint32_t, pairwise<int16_t, greatest_relu<int16_t>>>;
        return smallest ? binary<int32_t, least_relu<int32_t>> : binary<int32_t, greatest_relu<int32_t>>;
    }
    if (type == Type::u16x2 || type == Type::s16x2)
        return smallest ? pair_handler<least<int16_t>, least<uint16_t>>(type)
                        : pair_handler<greatest<int16_t>, greatest<uint16_t>>(type);
    return by_integer(
        type, [=]<class T>() -> Handler { return smallest ? binary<T, least<T>> : binary<T, greatest<T>>; });
}

template <class A>
Handler select_dot(const Instruction &instruction) {
    const bool signed_b = instruction.types[1] == Type::s32;
    if (instruction.opcode == Opcode::dp4a)
        return signed_b ? dot4<A, int8_t> : dot4<A, uint8_t>;
    if (instruction.mode == ptx::Mode::hi)
        return signed_b ? dot2<A, int8_t, true> : dot2<A, uint8_t, true>;
    return signed_b ? dot2<A, int8_t, false> : dot2<A, uint8_t, false>;
}

} // namespace

Handler select_integer(const Instruction &instruction, const Op &) {
    const Type type = instruction.types[0];
    if (ptx::is_float(type))
        return nullptr;
    switch (instruction.opcode) {
    case Opcode::add:
    case Opcode::addc:
    case Opcode::sub:
    case Opcode::subc:
        return select_sum(instruction);
    case Opcode::mul:
    case Opcode::mad:
    case Opcode::madc:
        return select_product(instruction);
    case Opcode::mul24:
        if (instruction.mode == ptx::Mode::hi)
            return type == Type::s32 ? binary<int32_t, product_24<int32_t, true>>
                                     : binary<uint32_t, product_24<uint32_t, true>>;
        return type == Type::s32 ? binary<int32_t, product_24<int32_t, false>>
                                 : binary<uint32_t, product_24<uint32_t, false>>;
    case Opcode::mad24:
        if (instruction.has(Flag::sat))
            return ternary<int32_t, [](int32_t a, int32_t b, int32_t c) {
                return saturate(static_cast<int64_t>(product_24<int32_t, true>(a, b)) + c);
            }>;
        return by_integer(type, [&]<class T>() -> Handler {
            return instruction.mode == ptx::Mode::hi
                       ? ternary<T, [](T a, T b, T c) { return add(product_24<T, true>(a, b), c); }>
                       : ternary<T, [](T a, T b, T c) { return add(product_24<T, false>(a, b), c); }>;
        });
    case Opcode::sad:
        return by_integer(type, []<class T>() -> Handler {
            return ternary<T, [](T a, T b, T c) { return add(distance(a, b), c); }>;
        });
    case Opcode::div:
        return by_integer(type, []<class T>() -> Handler { return binary<T, divide<T>>; });
    case Opcode::rem:
        return by_integer(type, []<class T>() -> Handler { return binary<T, remainder<T>>; });
    case Opcode::abs:
        return by_integer(type, []<class T>() -> Handler { return unary<T, absolute<T>>; });
    case Opcode::neg:
        return by_integer(
            type, []<class T>() -> Handler { return unary<T, [](T a) { return subtract<T>(0, a); }>; });
    case Opcode::min:
    case Opcode::max:
        return select_extreme(instruction);
    case Opcode::popc:
        return type == Type::b64 ? count_bits<uint64_t> : count_bits<uint32_t>;
    case Opcode::clz:
        return type == Type::b64 ? count_leading_zeros<uint64_t> : count_leading_zeros<uint32_t>;
    case Opcode::bfind:
        return by_integer(type, [&]<class T>() -> Handler {
            return instruction.has(Flag::shiftamt) ? find_bit<T, true> : find_bit<T, false>;
        });
    case Opcode::brev:
        return type == Type::b64 ? unary<uint64_t, reversed<uint64_t>> : unary<uint32_t, reversed<uint32_t>>;
    case Opcode::bfe:
        return by_integer(type, []<class T>() -> Handler { return extract_field<T>; });
    case Opcode::bfi:
        return type == Type::b64 ? insert_field<uint64_t> : insert_field<uint32_t>;
    case Opcode::fns:
        return ternary<uint32_t, nth_bit>;
    case Opcode::bmsk:
        return instruction.mode == ptx::Mode::clamp
                   ? binary<uint32_t, [](uint32_t a, uint32_t b) { return bit_mask(a, b, true); }>
                   : binary<uint32_t, [](uint32_t a, uint32_t b) { return bit_mask(a, b, false); }>;
    case Opcode::szext:
        if (instruction.mode == ptx::Mode::clamp)
            return type == Type::s32 ? binary<uint32_t, extended<true, true>>
                                     : binary<uint32_t, extended<true, false>>;
        return type == Type::s32 ? binary<uint32_t, extended<false, true>>
                                 : binary<uint32_t, extended<false, false>>;
    case Opcode::dp4a:
    case Opcode::dp2a:
        if (instruction.opcode == Opcode::dp4a)
            return type == Type::s32 ? select_dot<int8_t>(instruction) : select_dot<uint8_t>(instruction);
        return type == Type::s32 ? select_dot<int16_t>(instruction) : select_dot<uint16_t>(instruction);
    default:
        return nullptr;
    }
}

} // namespace singularity::softgpu::engine::SINGULARITY_LANES
