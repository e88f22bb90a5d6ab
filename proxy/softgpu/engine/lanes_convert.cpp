// SPDX-License-Identifier: GPL-2.0-or-later
// cvt. Mode bits: 1 ftz, 2 sat, 4 relu, 8 satfinite.
#include "engine/lanes_float.hpp"

#include <limits>

namespace singularity::softgpu::engine::SINGULARITY_LANES {

namespace {

using ptx::Rounding;
using std::int32_t;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;

constexpr unsigned kFtz = 1;
constexpr unsigned kSat = 2;
constexpr unsigned kRelu = 4;
constexpr unsigned kSatFinite = 8;

struct F16 {
    using Format = Half;
};
struct Bf16 {
    using Format = Brain;
};
template <class T>
inline constexpr bool kSmall = std::is_same_v<T, F16> || std::is_same_v<T, Bf16>;
template <class T>
inline constexpr bool kFloat = std::is_floating_point_v<T> || kSmall<T>;

template <class T>
struct RowOf {
    using Type = Container<T>;
};
template <>
struct RowOf<F16> {
    using Type = uint32_t;
};
template <>
struct RowOf<Bf16> {
    using Type = uint32_t;
};
template <class T>
using Row = typename RowOf<T>::Type;

template <class T>
[[gnu::always_inline]] inline double float_in(Row<T> bits, bool ftz) {
    if constexpr (kSmall<T>)
        return T::Format::to_double(bits & 0xFFFFU);
    else if constexpr (std::is_same_v<T, float>) {
        const auto value = unpack<float>(bits);
        return static_cast<double>(ftz ? flush(value) : value);
    } else
        return unpack<T>(bits);
}

// A double that rounds as the integer would: its last bit says that something was lost.
template <class T>
[[gnu::always_inline]] inline double integer_odd(T value) {
    if constexpr (sizeof(T) < 8)
        return static_cast<double>(value);
    else {
        const bool negative = std::is_signed_v<T> && value < 0;
        const uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
        const bool large = magnitude >= uint64_t{1} << 53U;
        const uint64_t kept = large ? (magnitude >> 11U) | ((magnitude & 0x7FFU) != 0 ? 1U : 0U) : magnitude;
        const double result = static_cast<double>(static_cast<int64_t>(kept)) * (large ? 2048. : 1.);
        return negative ? -result : result;
    }
}

// How a number is made a whole one.
enum class Whole : std::uint8_t { no, nearest, zero, down, up };
template <Whole W>
[[gnu::always_inline]] inline double whole(double value) {
    switch (W) {
    case Whole::nearest:
        return __builtin_rint(value);
    case Whole::zero:
        return __builtin_trunc(value);
    case Whole::down:
        return __builtin_floor(value);
    case Whole::up:
        return __builtin_ceil(value);
    default:
        return value;
    }
}

// Out of range gives the nearest integer of the type (PTX ISA, cvt); NaN 0, and of 64 bits the least s64.
template <class T>
[[gnu::always_inline]] inline T to_integer(double value) {
    if constexpr (sizeof(T) < 8) {
        constexpr auto low = static_cast<double>(std::numeric_limits<T>::min());
        constexpr auto high = static_cast<double>(std::numeric_limits<T>::max());
        const double inside = value > low ? (value < high ? value : high) : low;
        return static_cast<T>(static_cast<int64_t>(value == value ? inside : 0.));
    } else {
        constexpr double end = std::is_signed_v<T> ? 0x1p63 : 0x1p64;
        constexpr double low = std::is_signed_v<T> ? -0x1p63 : 0.;
        const bool inside = value >= low && value < end;
        const T exact = static_cast<T>(inside ? value : 0.);
        const T outside = value >= end ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
        const T nan = static_cast<T>(uint64_t{1} << 63U);
        return value == value ? (inside ? exact : outside) : nan;
    }
}

template <class From, class To, Whole W>
void float_to_integer(Context &context, const Op &op) {
    const Row<From> *a = row<Row<From>>(context, op.o[1]);
    const bool ftz = (op.mode & kFtz) != 0;
    each<Container<To>>(context, op.o[0], [=](unsigned i) {
        return pack<To>(to_integer<To>(whole<W>(float_in<From>(a[i], ftz))));
    });
}

template <class From, class To>
void integer_to_float(Context &context, const Op &op) {
    const HostRounding rounding(op.rounding);
    const Container<From> *a = row<Container<From>>(context, op.o[1]);
    const bool sat = (op.mode & kSat) != 0;
    each<Container<To>>(context, op.o[0], [=](unsigned i) {
        const auto value = static_cast<To>(unpack<From>(a[i]));
        return pack<To>(sat ? saturated(value) : value);
    });
}
template <class From, class To, Round How>
void integer_to_small(Context &context, const Op &op) {
    const Container<From> *a = row<Container<From>>(context, op.o[1]);
    const bool sat = (op.mode & kSat) != 0;
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        const double value = integer_odd(unpack<From>(a[i]));
        return To::Format::template from_double<How>(sat ? saturated(value) : value);
    });
}

template <class From, class To>
void integer_to_integer(Context &context, const Op &op) {
    const Container<From> *a = row<Container<From>>(context, op.o[1]);
    if ((op.mode & kSat) == 0) {
        each<Container<To>>(context, op.o[0], [=](unsigned i) {
            const From value = unpack<From>(a[i]);
            // Extended to the whole row, by the sign of the destination's type.
            return static_cast<Container<To>>(static_cast<To>(value));
        });
        return;
    }
    each<Container<To>>(context, op.o[0], [=](unsigned i) {
        const From value = unpack<From>(a[i]);
        using Limits = std::numeric_limits<To>;
        const bool below =
            std::is_signed_v<From> &&
            (std::is_signed_v<To> ? static_cast<int64_t>(value) < static_cast<int64_t>(Limits::min())
                                  : static_cast<int64_t>(value) < 0);
        const bool above = !(std::is_signed_v<From> && static_cast<int64_t>(value) < 0) &&
                           static_cast<uint64_t>(value) > static_cast<uint64_t>(Limits::max());
        const To inside = static_cast<To>(value);
        return static_cast<Container<To>>(below ? Limits::min() : above ? Limits::max() : inside);
    });
}

template <class From, class To, Whole W>
void float_to_float(Context &context, const Op &op) {
    const HostRounding rounding(W == Whole::no ? op.rounding : std::uint8_t{0});
    const Row<From> *a = row<Row<From>>(context, op.o[1]);
    const bool ftz = (op.mode & kFtz) != 0;
    const bool sat = (op.mode & kSat) != 0;
    each<Container<To>>(context, op.o[0], [=](unsigned i) {
        const double in = whole<W>(float_in<From>(a[i], ftz));
        auto value = static_cast<To>(in);
        if constexpr (std::is_same_v<To, float>) {
            value = ftz ? flush(value) : value;
            value = canonical(value);
        } else if constexpr (!std::is_same_v<From, double>) {
            value = value == value ? value : __builtin_bit_cast(double, 0x7FFFFFFFE0000000ULL);
        }
        return pack<To>(sat ? saturated(value) : value);
    });
}

template <class From, class To, Whole W, Round How>
void float_to_small(Context &context, const Op &op) {
    using Format = typename To::Format;
    const Row<From> *a = row<Row<From>>(context, op.o[1]);
    const unsigned mode = op.mode;
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        double value = whole<W>(float_in<From>(a[i], (mode & kFtz) != 0));
        value = (mode & kSat) != 0 ? saturated(value) : value;
        value = (mode & kRelu) != 0 && value < 0 ? 0. : value;
        uint32_t bits = Format::template from_double<How>(value);
        bits = (mode & kRelu) != 0 && bits == Format::kSign ? 0 : bits;
        if ((mode & kSatFinite) != 0)
            bits = (bits & (Format::kSign - 1)) == Format::kInfinity ? bits - 1 : bits;
        return bits;
    });
}

template <class T>
[[gnu::always_inline]] inline uint32_t small_of_float(uint32_t bits, unsigned mode, bool to_zero) {
    using Format = typename T::Format;
    double value = float_in<float>(bits, (mode & kFtz) != 0);
    value = (mode & kRelu) != 0 && !(value > 0) && value == value ? 0. : value;
    uint32_t result = to_zero ? Format::template from_double<Round::zero>(value)
                              : Format::template from_double<Round::nearest>(value);
    if ((mode & kSatFinite) != 0)
        result = (result & (Format::kSign - 1)) == Format::kInfinity ? result - 1 : result;
    return result;
}
// cvt.rn.f16x2.f32 d, a, b: a is the upper half.
template <class T, bool Zero>
void floats_to_pair(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const unsigned mode = op.mode;
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        return (small_of_float<T>(a[i], mode, Zero) << 16U) | small_of_float<T>(b[i], mode, Zero);
    });
}

// tf32: the upper 19 bits of an f32.
template <Round How>
void float_to_tf32(Context &context, const Op &op) {
    using Format = Small<8, 10>;
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const unsigned mode = op.mode;
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        double value = float_in<float>(a[i], false);
        value = (mode & kRelu) != 0 && !(value > 0) && value == value ? 0. : value;
        uint32_t bits = Format::template from_double<How>(value);
        if ((mode & kSatFinite) != 0)
            bits = (bits & (Format::kSign - 1)) == Format::kInfinity ? bits - 1 : bits;
        return Format::is_nan(bits) ? kNan32 : bits << 13U;
    });
}

// Eight bits. e5m2 is IEEE's shape; e4m3 has no infinity and one NaN, so its largest number is 448.
struct E5m2 {
    [[gnu::always_inline]] static uint32_t from(double value) {
        using Format = Small<5, 2>;
        const uint32_t bits = Format::from_double<Round::nearest>(value);
        return (bits & 0x7FU) == Format::kInfinity ? bits - 1 : bits; // satfinite
    }
    [[gnu::always_inline]] static double to(uint32_t bits) { return Small<5, 2>::to_double(bits & 0xFFU); }
};
struct E4m3 {
    [[gnu::always_inline]] static uint32_t from(double value) {
        // As if exponents went one further: numbers up to 480 are then in range of the rounding.
        const double magnitude = __builtin_fabs(value);
        const uint32_t sign = __builtin_bit_cast(uint64_t, value) >> 63U != 0 ? 0x80U : 0;
        if (!(magnitude == magnitude))
            return 0x7FU;
        if (magnitude >= 448.)
            return sign | 0x7EU;
        using Format = Small<5, 3>; // bias 15 instead of 7: scaled by 2^-8
        if (magnitude >= 0x1p-6) {
            const uint32_t bits = Format::from_double<Round::nearest>(magnitude * 0x1p-8);
            return sign | bits;
        }
        // Subnormal: units of 2^-9.
        return sign | static_cast<uint32_t>(__builtin_rint(magnitude * 512.));
    }
    [[gnu::always_inline]] static double to(uint32_t bits) {
        const uint32_t magnitude = bits & 0x7FU;
        const double sign = (bits & 0x80U) != 0 ? -1. : 1.;
        if (magnitude == 0x7FU)
            return __builtin_nan("");
        const uint32_t exponent = magnitude >> 3U;
        const double fraction = static_cast<double>(static_cast<int>(magnitude & 7U)) / 8.;
        if (exponent == 0)
            return sign * fraction * 0x1p-6;
        return sign * (1. + fraction) *
               __builtin_bit_cast(double, static_cast<uint64_t>(exponent + 1016) << 52U);
    }
};

template <class Tiny>
void floats_to_tiny(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const unsigned mode = op.mode;
    const auto one = [=](uint32_t bits) {
        const double value = float_in<float>(bits, false);
        return Tiny::from((mode & kRelu) != 0 && value < 0 ? 0. : value);
    };
    for (unsigned i = 0; i < kLanes; ++i)
        if ((context.mask & (1U << i)) != 0)
            row<uint32_t>(context, op.o[0])[i] = (one(a[i]) << 8U) | one(b[i]);
}
template <class Tiny, class Format>
void pair_to_tiny(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const unsigned mode = op.mode;
    const auto one = [=](uint32_t bits) {
        const double value = Format::to_double(bits & 0xFFFFU);
        return Tiny::from((mode & kRelu) != 0 && value < 0 ? 0. : value);
    };
    for (unsigned i = 0; i < kLanes; ++i)
        if ((context.mask & (1U << i)) != 0)
            row<uint32_t>(context, op.o[0])[i] = (one(a[i] >> 16U) << 8U) | one(a[i]);
}
template <class Tiny, class Format>
void tiny_to_pair(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const unsigned mode = op.mode;
    const auto one = [=](uint32_t bits) {
        const uint32_t value = Format::template from_double<Round::nearest>(Tiny::to(bits));
        const bool negative = (mode & kRelu) != 0 && (value & 0x8000U) != 0 && !Format::is_nan(value);
        return negative ? 0U : value;
    };
    for (unsigned i = 0; i < kLanes; ++i)
        if ((context.mask & (1U << i)) != 0)
            row<uint32_t>(context, op.o[0])[i] = (one(a[i] >> 8U) << 16U) | one(a[i] & 0xFFU);
}

// cvt.pack.sat.u8.s32.b32 d, a, b, c: {c's lower half, a, b}
template <class To, bool Chained>
void packed(Context &context, const Op &op) {
    constexpr unsigned bits = 8 * sizeof(To);
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const uint32_t *c = Chained ? row<uint32_t>(context, op.o[3]) : a;
    const auto one = [](uint32_t word) {
        const auto value = static_cast<int32_t>(word);
        constexpr int32_t low = std::numeric_limits<To>::min();
        constexpr int32_t high = std::numeric_limits<To>::max();
        const int32_t inside = value < low ? low : value > high ? high : value;
        return static_cast<uint32_t>(inside) & ((1U << bits) - 1);
    };
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        uint32_t value = one(b[i]) | (one(a[i]) << bits);
        if constexpr (Chained && sizeof(To) == 1)
            value |= c[i] << 16U;
        return value;
    });
}

template <class G>
Handler by_rounding(Rounding rounding, G g) {
    switch (rounding) {
    case Rounding::rz:
        return g.template operator()<Round::zero>();
    case Rounding::rm:
        return g.template operator()<Round::down>();
    case Rounding::rp:
        return g.template operator()<Round::up>();
    case Rounding::rna:
        return g.template operator()<Round::away>();
    case Rounding::rs:
        return nullptr;
    default:
        return g.template operator()<Round::nearest>();
    }
}
template <class G>
Handler by_whole(Rounding rounding, G g) {
    switch (rounding) {
    case Rounding::rni:
        return g.template operator()<Whole::nearest>();
    case Rounding::rzi:
        return g.template operator()<Whole::zero>();
    case Rounding::rmi:
        return g.template operator()<Whole::down>();
    case Rounding::rpi:
        return g.template operator()<Whole::up>();
    default:
        return g.template operator()<Whole::no>();
    }
}

template <class From, class To>
Handler conversion(const Instruction &instruction) {
    const Rounding rounding = instruction.rounding;
    if constexpr (kFloat<From> && !kFloat<To>)
        return by_whole(rounding, []<Whole W>() -> Handler {
            if constexpr (W == Whole::no)
                return nullptr;
            else
                return float_to_integer<From, To, W>;
        });
    else if constexpr (!kFloat<From> && kSmall<To>)
        return by_rounding(rounding, []<Round R>() -> Handler { return integer_to_small<From, To, R>; });
    else if constexpr (!kFloat<From> && kFloat<To>)
        return integer_to_float<From, To>;
    else if constexpr (!kFloat<From>)
        return integer_to_integer<From, To>;
    else if constexpr (kSmall<To>) {
        if constexpr (std::is_same_v<From, To>)
            return by_whole(rounding,
                            []<Whole W>() -> Handler { return float_to_small<From, To, W, Round::nearest>; });
        else
            return by_rounding(rounding,
                               []<Round R>() -> Handler { return float_to_small<From, To, Whole::no, R>; });
    } else
        return by_whole(rounding, []<Whole W>() -> Handler { return float_to_float<From, To, W>; });
}

template <class G>
Handler by_type(Type type, G g) {
    switch (type) {
    case Type::u8:
        return g.template operator()<std::uint8_t>();
    case Type::s8:
        return g.template operator()<std::int8_t>();
    case Type::f16:
        return g.template operator()<F16>();
    case Type::bf16:
        return g.template operator()<Bf16>();
    case Type::f32:
        return g.template operator()<float>();
    case Type::f64:
        return g.template operator()<double>();
    default:
        return by_integer(type, g);
    }
}

template <class T>
Handler to_pair(Rounding rounding) {
    if (rounding == Rounding::rs)
        return nullptr;
    return rounding == Rounding::rz ? floats_to_pair<T, true> : floats_to_pair<T, false>;
}

// To nearest is the only rounding that there is (ptxas refuses .rz), and .rs is not done.
template <class Tiny>
Handler to_tiny(Type from, Rounding rounding) {
    if (rounding != Rounding::rn)
        return nullptr;
    if (from == Type::f32)
        return floats_to_tiny<Tiny>;
    return from == Type::f16x2    ? pair_to_tiny<Tiny, Half>
           : from == Type::bf16x2 ? pair_to_tiny<Tiny, Brain>
                                  : nullptr;
}

template <class To>
Handler select_packed(const Op &op) {
    return op.o[3] != kAbsent ? packed<To, true> : packed<To, false>;
}

} // namespace

Handler select_convert(const Instruction &instruction, const Op &op) {
    if (instruction.opcode != Opcode::cvt)
        return nullptr;
    const Type to = instruction.types[0];
    const Type from = instruction.types[1];
    if (instruction.mode == ptx::Mode::pack) {
        switch (to) {
        case Type::u8:
            return select_packed<std::uint8_t>(op);
        case Type::s8:
            return select_packed<std::int8_t>(op);
        case Type::u16:
            return select_packed<std::uint16_t>(op);
        case Type::s16:
            return select_packed<std::int16_t>(op);
        default:
            return nullptr;
        }
    }
    switch (to) {
    case Type::f16x2:
        if (from == Type::e4m3x2)
            return tiny_to_pair<E4m3, Half>;
        if (from == Type::e5m2x2)
            return tiny_to_pair<E5m2, Half>;
        return from == Type::f32 ? to_pair<F16>(instruction.rounding) : nullptr;
    case Type::bf16x2:
        if (from == Type::e4m3x2)
            return tiny_to_pair<E4m3, Brain>;
        if (from == Type::e5m2x2)
            return tiny_to_pair<E5m2, Brain>;
        return from == Type::f32 ? to_pair<Bf16>(instruction.rounding) : nullptr;
    case Type::e4m3x2:
        return to_tiny<E4m3>(from, instruction.rounding);
    case Type::e5m2x2:
        return to_tiny<E5m2>(from, instruction.rounding);
    case Type::tf32:
        return by_rounding(instruction.rounding, []<Round R>() -> Handler { return float_to_tf32<R>; });
    default:
        break;
    }
    return by_type(to, [&]<class To>() -> Handler {
        return by_type(from, [&]<class From>() -> Handler { return conversion<From, To>(instruction); });
    });
}

} // namespace singularity::softgpu::engine::SINGULARITY_LANES
