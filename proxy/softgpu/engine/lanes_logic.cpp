// SPDX-License-Identifier: GPL-2.0-or-later
// Comparison, selection, bits, moves, and the table of this instruction set's handlers.
#include "engine/lanes.hpp"

namespace singularity::softgpu::engine::SINGULARITY_LANES {

Handler select_integer(const Instruction &instruction, const Op &op);
Handler select_video(const Instruction &instruction, const Op &op);
Handler select_floating(const Instruction &instruction, const Op &op);
Handler select_half(const Instruction &instruction, const Op &op);
Handler select_convert(const Instruction &instruction, const Op &op);
Handler select_load(Type type, const Op &op);
Handler select_store(Type type, const Op &op);

namespace {

using ptx::Comparison;
using ptx::Operation;
using std::int32_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;

[[gnu::always_inline]] inline float flushed(float value) {
    const auto bits = __builtin_bit_cast(uint32_t, value);
    return __builtin_bit_cast(float, (bits & 0x7F800000U) == 0 ? bits & 0x80000000U : bits);
}

// Floats as numbers, the halves as f32: a comparison of them is exact.
struct F16 {};
struct Bf16 {};
template <class T>
struct Compared {
    using Value = T;
    using Row = Container<T>;
    [[gnu::always_inline]] static T of(Row bits) { return unpack<T>(bits); }
    [[gnu::always_inline]] static T flush(T value) { return flushed(value); }
};
template <>
struct Compared<F16> {
    using Value = float;
    using Row = uint32_t;
    // Exponents of f16 are moved to where f32 has them; subnormals come out by the subtraction.
    [[gnu::always_inline]] static float of(Row bits) {
        const uint32_t magnitude = (bits & 0x7FFFU) << 13U;
        const bool large = (bits & 0x7C00U) == 0x7C00U;
        const bool small = (bits & 0x7C00U) == 0;
        const uint32_t normal = magnitude + (large ? (255U - 31U) << 23U : (127U - 15U) << 23U);
        const float subnormal = static_cast<float>(static_cast<int32_t>(bits & 0x3FFU)) * 0x1p-24F;
        const uint32_t value = small ? __builtin_bit_cast(uint32_t, subnormal) : normal;
        return __builtin_bit_cast(float, value | ((bits & 0x8000U) << 16U));
    }
    // Subnormal as f16 is normal as f32.
    [[gnu::always_inline]] static float flush(float value) {
        return value > -0x1p-14F && value < 0x1p-14F ? 0.F : value;
    }
};
template <>
struct Compared<Bf16> {
    using Value = float;
    using Row = uint32_t;
    [[gnu::always_inline]] static float of(Row bits) { return __builtin_bit_cast(float, bits << 16U); }
    [[gnu::always_inline]] static float flush(float value) { return flushed(value); }
};

template <Comparison How, class V>
[[gnu::always_inline]] inline bool compare(V a, V b) {
    switch (How) {
    case Comparison::eq:
        return a == b;
    case Comparison::ne: // ordered: false on NaN
        return std::is_floating_point_v<V> ? (a < b || a > b) : a != b;
    case Comparison::lt:
        return a < b;
    case Comparison::le:
        return a <= b;
    case Comparison::gt:
        return a > b;
    case Comparison::ge:
        return a >= b;
    case Comparison::equ:
        return !(a < b || a > b);
    case Comparison::neu:
        return a != b;
    case Comparison::ltu:
        return !(a >= b);
    case Comparison::leu:
        return !(a > b);
    case Comparison::gtu:
        return !(a <= b);
    case Comparison::geu:
        return !(a < b);
    case Comparison::num:
        return a == a && b == b;
    case Comparison::nan:
        return a != a || b != b;
    default:
        return false;
    }
}

template <class T, Comparison How, bool Ftz>
[[gnu::always_inline]] inline uint32_t comparison_bits(Context &context, Ref left, Ref right) {
    using R = typename Compared<T>::Row;
    const R *a = row<R>(context, left);
    const R *b = row<R>(context, right);
    return gather_bits([=](unsigned i) {
        auto x = Compared<T>::of(a[i]);
        auto y = Compared<T>::of(b[i]);
        if constexpr (Ftz) {
            x = Compared<T>::flush(x);
            y = Compared<T>::flush(y);
        }
        return compare<How>(x, y);
    });
}

// The predicate that comes with .and/.or/.xor
[[gnu::always_inline]] inline uint32_t combine(const Op &op, uint32_t bits, uint32_t other) {
    switch (static_cast<Operation>(op.mode)) {
    case Operation::and_:
        return bits & other;
    case Operation::or_:
        return bits | other;
    case Operation::xor_:
        return bits ^ other;
    default:
        return bits;
    }
}

// setp: p, q, a, b [, c]
template <class T, Comparison How, bool Ftz>
void set_predicates(Context &context, const Op &op) {
    const uint32_t bits = comparison_bits<T, How, Ftz>(context, op.o[2], op.o[3]);
    if (op.mode == 0) [[likely]] {
        set_predicate(context, op.o[0], bits);
        if (op.o[1] != kAbsent)
            set_predicate(context, op.o[1], ~bits);
        return;
    }
    const uint32_t other = predicate(context, op.o[4]);
    const uint32_t first = combine(op, bits, other);
    const uint32_t second = combine(op, ~bits, other);
    set_predicate(context, op.o[0], first);
    if (op.o[1] != kAbsent)
        set_predicate(context, op.o[1], second);
}

// set: d, a, b [, c]; immediate: what true is.
template <class T, Comparison How, bool Ftz>
void set_value(Context &context, const Op &op) {
    uint32_t bits = comparison_bits<T, How, Ftz>(context, op.o[1], op.o[2]);
    if (op.mode != 0)
        bits = combine(op, bits, predicate(context, op.o[3]));
    const auto yes = static_cast<uint32_t>(op.immediate);
    each<uint32_t>(context, op.o[0], [=](unsigned i) { return (bits & (1U << i)) != 0 ? yes : 0U; });
}

// f16x2 and bf16x2: setp's p is of the low halves, q of the high ones; set's result has both.
template <class T, Comparison How, bool Ftz>
void set_pair(Context &context, const Op &op) {
    const bool to_predicates = (op.access & 1U) != 0;
    const unsigned first = to_predicates ? 2 : 1;
    const uint32_t *a = row<uint32_t>(context, op.o[first]);
    const uint32_t *b = row<uint32_t>(context, op.o[first + 1]);
    const auto bits_of = [=](unsigned shift) {
        return gather_bits([=](unsigned i) {
            auto x = Compared<T>::of((a[i] >> shift) & 0xFFFFU);
            auto y = Compared<T>::of((b[i] >> shift) & 0xFFFFU);
            if constexpr (Ftz) {
                x = Compared<T>::flush(x);
                y = Compared<T>::flush(y);
            }
            return compare<How>(x, y);
        });
    };
    uint32_t low = bits_of(0);
    uint32_t high = bits_of(16);
    if (op.mode != 0) {
        const uint32_t other = predicate(context, op.o[first + 2]);
        low = combine(op, low, other);
        high = combine(op, high, other);
    }
    if (to_predicates) {
        set_predicate(context, op.o[0], low);
        if (op.o[1] != kAbsent)
            set_predicate(context, op.o[1], high);
        return;
    }
    const auto yes = static_cast<uint32_t>(op.immediate);
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        return ((low & (1U << i)) != 0 ? yes : 0U) | ((high & (1U << i)) != 0 ? yes << 16U : 0U);
    });
}

template <class T, Comparison How, bool Ftz>
Handler comparison_of(bool to_predicate, bool pair) {
    if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, Bf16>)
        if (pair)
            return set_pair<T, How, Ftz>;
    return to_predicate ? set_predicates<T, How, Ftz> : set_value<T, How, Ftz>;
}

template <class T>
Handler by_comparison(const Instruction &instruction) {
    const bool predicate = instruction.opcode == Opcode::setp;
    const Type type = predicate ? instruction.types[0] : instruction.types[1];
    const bool pair = type == Type::f16x2 || type == Type::bf16x2;
    constexpr bool floating = !std::is_integral_v<T>;
    constexpr bool can_flush = floating && !std::is_same_v<T, double> && !std::is_same_v<T, Bf16>;
    const bool ftz = instruction.has(Flag::ftz);
#define SINGULARITY_COMPARISON(NAME)                                                                         \
    case Comparison::NAME:                                                                                   \
        if constexpr (can_flush)                                                                             \
            if (ftz)                                                                                         \
                return comparison_of<T, Comparison::NAME, true>(predicate, pair);                            \
        return comparison_of<T, Comparison::NAME, false>(predicate, pair)
    switch (instruction.comparison) {
        SINGULARITY_COMPARISON(eq);
        SINGULARITY_COMPARISON(ne);
        SINGULARITY_COMPARISON(lt);
        SINGULARITY_COMPARISON(le);
        SINGULARITY_COMPARISON(gt);
        SINGULARITY_COMPARISON(ge);
    default:
        break;
    }
    if constexpr (floating) {
        switch (instruction.comparison) {
            SINGULARITY_COMPARISON(equ);
            SINGULARITY_COMPARISON(neu);
            SINGULARITY_COMPARISON(ltu);
            SINGULARITY_COMPARISON(leu);
            SINGULARITY_COMPARISON(gtu);
            SINGULARITY_COMPARISON(geu);
            SINGULARITY_COMPARISON(num);
            SINGULARITY_COMPARISON(nan);
        default:
            break;
        }
    } else { // lo, ls, hi, hs: of unsigned numbers
        switch (instruction.comparison) {
        case Comparison::lo:
            return comparison_of<std::make_unsigned_t<T>, Comparison::lt, false>(predicate, false);
        case Comparison::ls:
            return comparison_of<std::make_unsigned_t<T>, Comparison::le, false>(predicate, false);
        case Comparison::hi:
            return comparison_of<std::make_unsigned_t<T>, Comparison::gt, false>(predicate, false);
        case Comparison::hs:
            return comparison_of<std::make_unsigned_t<T>, Comparison::ge, false>(predicate, false);
        default:
            break;
        }
    }
#undef SINGULARITY_COMPARISON
    return nullptr;
}

Handler select_comparison(const Instruction &instruction) {
    const Type type = instruction.opcode == Opcode::setp ? instruction.types[0] : instruction.types[1];
    switch (type) {
    case Type::f32:
        return by_comparison<float>(instruction);
    case Type::f64:
        return by_comparison<double>(instruction);
    case Type::f16:
    case Type::f16x2:
        return by_comparison<F16>(instruction);
    case Type::bf16:
    case Type::bf16x2:
        return by_comparison<Bf16>(instruction);
    default:
        return by_integer(type, [&]<class T>() -> Handler { return by_comparison<T>(instruction); });
    }
}

template <class C>
void select_value(Context &context, const Op &op) {
    const C *a = row<C>(context, op.o[1]);
    const C *b = row<C>(context, op.o[2]);
    const uint32_t chosen = predicate(context, op.o[3]);
    each<C>(context, op.o[0], [=](unsigned i) { return (chosen & (1U << i)) != 0 ? a[i] : b[i]; });
}

// slct: by the sign of c; mode 1: c is a float, mode 2: with subnormals flushed
template <class C>
void select_by_sign(Context &context, const Op &op) {
    const C *a = row<C>(context, op.o[1]);
    const C *b = row<C>(context, op.o[2]);
    const uint32_t *c = row<uint32_t>(context, op.o[3]);
    if (op.mode == 0) {
        each<C>(context, op.o[0], [=](unsigned i) { return static_cast<int32_t>(c[i]) >= 0 ? a[i] : b[i]; });
        return;
    }
    const bool flush = op.mode == 2;
    each<C>(context, op.o[0], [=](unsigned i) {
        const auto value = __builtin_bit_cast(float, c[i]);
        return (flush ? flushed(value) : value) >= 0 ? a[i] : b[i];
    });
}

template <class T>
void shift_left(Context &context, const Op &op) {
    using C = Container<T>;
    constexpr uint32_t width = 8 * sizeof(T);
    const C *a = row<C>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    each<C>(context, op.o[0], [=](unsigned i) {
        const C shifted = static_cast<C>(a[i] << (b[i] & (8 * sizeof(C) - 1)));
        return b[i] >= width ? C{0} : shifted;
    });
}
template <class T>
void shift_right(Context &context, const Op &op) {
    using C = Container<T>;
    constexpr uint32_t width = 8 * sizeof(T);
    const C *a = row<C>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    each<C>(context, op.o[0], [=](unsigned i) {
        const T value = unpack<T>(a[i]);
        const uint32_t by = b[i] >= width ? width - 1 : b[i];
        const T shifted = static_cast<T>(value >> by);
        if constexpr (std::is_signed_v<T>)
            return pack<T>(shifted);
        else
            return pack<T>(b[i] >= width ? T{0} : shifted);
    });
}

template <bool Left, bool Clamp>
[[gnu::always_inline]] inline uint32_t funnel(uint32_t low, uint32_t high, uint32_t by) {
    const uint32_t amount = Clamp ? (by > 32 ? 32 : by) : by & 31U;
    const uint64_t both = (static_cast<uint64_t>(high) << 32U) | low;
    return static_cast<uint32_t>(Left ? (both << amount) >> 32U : both >> amount);
}

// The truth table selects the terms; vector code is made of and, or, xor only for the tables met most.
[[gnu::always_inline]] inline uint32_t logic3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t value = 0;
    for (unsigned term = 0; term < 8; ++term) {
        const uint32_t wanted = 0U - ((table >> term) & 1U);
        value |=
            wanted & ((term & 4U) != 0 ? a : ~a) & ((term & 2U) != 0 ? b : ~b) & ((term & 1U) != 0 ? c : ~c);
    }
    return value;
}
void logic_table(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const uint32_t *c = row<uint32_t>(context, op.o[3]);
    const auto table = static_cast<uint32_t>(op.immediate);
    each<uint32_t>(context, op.o[0], [=](unsigned i) { return logic3(a[i], b[i], c[i], table); });
}
// lop3.BoolOp: d, p, a, b, c, table, q
void logic_table_predicate(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[2]);
    const uint32_t *b = row<uint32_t>(context, op.o[3]);
    const uint32_t *c = row<uint32_t>(context, op.o[4]);
    const auto table = static_cast<uint32_t>(op.immediate);
    uint32_t values[kLanes];
    for (unsigned i = 0; i < kLanes; ++i)
        values[i] = logic3(a[i], b[i], c[i], table);
    const uint32_t bits = gather_bits([&](unsigned i) { return values[i] != 0; });
    const uint32_t result = combine(op, bits, predicate(context, op.o[5]));
    if (op.o[0] != kAbsent)
        each<uint32_t>(context, op.o[0], [&](unsigned i) { return values[i]; });
    if (op.o[1] != kAbsent)
        set_predicate(context, op.o[1], result);
}

// Byte `index` of the pair; bit 3 of the selector repeats the byte's sign.
[[gnu::always_inline]] inline uint32_t picked(uint64_t pair, uint32_t selector) {
    const auto byte = static_cast<uint32_t>(pair >> (8 * (selector & 7U))) & 0xFFU;
    return (selector & 8U) != 0 ? ((byte & 0x80U) != 0 ? 0xFFU : 0U) : byte;
}
void permute(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const uint32_t *c = row<uint32_t>(context, op.o[3]);
    // Rows of selectors by the low two bits of c (PTX ISA, prmt), most significant byte first.
    static constexpr uint16_t kModes[6][4] = {
        {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123}, {0x0000, 0x1111, 0x2222, 0x3333},
        {0x3210, 0x3211, 0x3222, 0x3333}, {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
    const unsigned mode = op.mode;
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        const uint64_t pair = (static_cast<uint64_t>(b[i]) << 32U) | a[i];
        const uint32_t selectors = mode == 0 ? c[i] : kModes[mode - 1][c[i] & 3U];
        uint32_t value = 0;
        for (unsigned k = 0; k < 4; ++k)
            value |= picked(pair, (selectors >> (4 * k)) & 0xFU) << (8 * k);
        return value;
    });
}

template <auto F>
void predicates(Context &context, const Op &op) {
    set_predicate(context, op.o[0], F(predicate(context, op.o[1]), predicate(context, op.o[2])));
}
void predicate_not(Context &context, const Op &op) {
    set_predicate(context, op.o[0], ~predicate(context, op.o[1]));
}
void predicate_move(Context &context, const Op &op) {
    set_predicate(context, op.o[0], predicate(context, op.o[1]));
}

template <class C>
void move(Context &context, const Op &op) {
    const C *a = row<C>(context, op.o[1]);
    each<C>(context, op.o[0], [=](unsigned i) { return a[i]; });
}

using Wide = Unsigned128;
void move_wide(Context &context, const Op &op) {
    const Wide *a = row<Wide>(context, op.o[1]);
    Wide *d = row<Wide>(context, op.o[0]);
    for (unsigned i = 0; i < kLanes; ++i)
        if ((context.mask & (1U << i)) != 0)
            d[i] = a[i];
}

void widen_unsigned(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    each<uint64_t>(context, op.o[0], [=](unsigned i) { return static_cast<uint64_t>(a[i]); });
}
void widen_signed(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    each<uint64_t>(context, op.o[0], [=](unsigned i) {
        return static_cast<uint64_t>(static_cast<std::int64_t>(static_cast<int32_t>(a[i])));
    });
}
void narrow(Context &context, const Op &op) {
    const uint64_t *a = row<uint64_t>(context, op.o[1]);
    each<uint32_t>(context, op.o[0], [=](unsigned i) { return static_cast<uint32_t>(a[i]); });
}

// mov between a register and a tuple; the first element is the lowest.
template <class Part, class Whole>
void pack_tuple(Context &context, const Op &op) {
    const Ref *parts = &context.code->extra[op.extra];
    Whole *out = row<Whole>(context, op.o[0]);
    for (unsigned i = 0; i < kLanes; ++i) {
        if ((context.mask & (1U << i)) == 0)
            continue;
        Whole value = 0;
        for (unsigned k = 0; k < op.count; ++k)
            value |= static_cast<Whole>(static_cast<Part>(row<Container<Part>>(context, parts[k])[i]))
                     << (8 * sizeof(Part) * k);
        out[i] = value;
    }
}
// Through a copy: the register may be one of the tuple.
template <class Part, class Whole>
void unpack_tuple(Context &context, const Op &op) {
    const Ref *parts = &context.code->extra[op.extra];
    Whole values[kLanes];
    __builtin_memcpy(values, row<Whole>(context, op.o[0]), sizeof(values));
    for (unsigned k = 0; k < op.count; ++k)
        each<Container<Part>>(context, parts[k], [&](unsigned i) {
            return static_cast<Container<Part>>(static_cast<Part>(values[i] >> (8 * sizeof(Part) * k)));
        });
}
template <class G>
Handler by_parts(uint32_t part, uint32_t whole, G g) {
    using std::uint8_t;
    switch (whole * 16 + part) {
    case 2 * 16 + 1:
    case 4 * 16 + 1:
        return g.template operator()<uint8_t, uint32_t>();
    case 4 * 16 + 2:
        return g.template operator()<uint16_t, uint32_t>();
    case 8 * 16 + 1:
        return g.template operator()<uint8_t, uint64_t>();
    case 8 * 16 + 2:
        return g.template operator()<uint16_t, uint64_t>();
    case 8 * 16 + 4:
        return g.template operator()<uint32_t, uint64_t>();
    case 16 * 16 + 8:
        return g.template operator()<uint64_t, Wide>();
    case 16 * 16 + 4:
        return g.template operator()<uint32_t, Wide>();
    default:
        return nullptr;
    }
}
Handler pack_handler(uint32_t part, uint32_t whole) {
    return by_parts(part, whole, []<class P, class W>() -> Handler { return pack_tuple<P, W>; });
}
Handler unpack_handler(uint32_t part, uint32_t whole) {
    return by_parts(part, whole, []<class P, class W>() -> Handler { return unpack_tuple<P, W>; });
}

template <auto W, auto P>
Handler logic_handler(Type type) {
    switch (ptx::type_size(type)) {
    case 1:
        return predicates<P>;
    case 2:
    case 4:
        return binary<uint32_t, P>;
    case 8:
        return binary<uint64_t, W>;
    default:
        return nullptr;
    }
}

Handler select_logic(const Instruction &instruction, const Op &) {
    const Type type = instruction.types[0];
    switch (instruction.opcode) {
    case Opcode::setp:
    case Opcode::set:
        return select_comparison(instruction);
    case Opcode::selp:
        return ptx::type_size(type) == 8 ? select_value<uint64_t> : select_value<uint32_t>;
    case Opcode::slct:
        return ptx::type_size(type) == 8 ? select_by_sign<uint64_t> : select_by_sign<uint32_t>;
    case Opcode::and_:
        return logic_handler<[](uint64_t a, uint64_t b) { return a & b; },
                             [](uint32_t a, uint32_t b) { return a & b; }>(type);
    case Opcode::or_:
        return logic_handler<[](uint64_t a, uint64_t b) { return a | b; },
                             [](uint32_t a, uint32_t b) { return a | b; }>(type);
    case Opcode::xor_:
        return logic_handler<[](uint64_t a, uint64_t b) { return a ^ b; },
                             [](uint32_t a, uint32_t b) { return a ^ b; }>(type);
    case Opcode::not_:
        if (type == Type::pred)
            return predicate_not;
        return ptx::type_size(type) == 8 ? unary<uint64_t, [](uint64_t a) { return ~a; }>
                                         : unary<uint32_t, [](uint32_t a) { return ~a; }>;
    case Opcode::cnot:
        return by_size(type, []<class T>() -> Handler {
            return unary<T, [](T a) { return static_cast<T>(a == 0 ? 1 : 0); }>;
        });
    case Opcode::lop3:
        return instruction.operation == Operation::none ? logic_table : logic_table_predicate;
    case Opcode::shl:
        return by_size(type, []<class T>() -> Handler { return shift_left<T>; });
    case Opcode::shr:
        return by_integer(type, []<class T>() -> Handler { return shift_right<T>; });
    case Opcode::shf: {
        const bool clamp = instruction.mode == ptx::Mode::clamp;
        if (instruction.has(Flag::left))
            return clamp ? ternary<uint32_t, funnel<true, true>> : ternary<uint32_t, funnel<true, false>>;
        return clamp ? ternary<uint32_t, funnel<false, true>> : ternary<uint32_t, funnel<false, false>>;
    }
    case Opcode::prmt:
        return permute;
    case Opcode::mov:
        switch (ptx::type_size(type)) {
        case 1:
            return predicate_move;
        case 2:
        case 4:
            return move<uint32_t>;
        case 8:
            return move<uint64_t>;
        case 16:
            return move_wide;
        default:
            return nullptr;
        }
    default:
        return nullptr;
    }
}

} // namespace

extern const HandlerSet kHandlers;
const HandlerSet kHandlers = {select_integer, select_video, select_floating, select_half,    select_convert,
                              select_logic,   select_load,  select_store,    widen_unsigned, widen_signed,
                              narrow,         pack_handler, unpack_handler};

} // namespace singularity::softgpu::engine::SINGULARITY_LANES
