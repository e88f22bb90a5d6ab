// SPDX-License-Identifier: GPL-2.0-or-later
// f32 and f64. Arithmetic is the host's, which is IEEE's; approximations are evaluated in f64, so they are
// closer than the ISA asks and the same on every host.
#include "engine/lanes_float.hpp"

namespace singularity::softgpu::engine::SINGULARITY_LANES {

namespace {

using std::int32_t;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;

// A double operation hands on the payload of its first NaN; which one the host takes is the compiler's whim.
[[gnu::always_inline]] inline double quiet(double value) {
    return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, value) | 0x0008000000000000ULL);
}
[[gnu::always_inline]] inline double chosen_nan(double result, double a, double b, double c) {
    const double made = __builtin_bit_cast(double, kNan64);
    const double nan = a != a ? quiet(a) : b != b ? quiet(b) : c != c ? quiet(c) : made;
    return result == result ? result : nan;
}

template <class T, bool Ftz>
[[gnu::always_inline]] inline T input(T value) {
    if constexpr (Ftz)
        return flush(value);
    else
        return value;
}
template <class T, bool Ftz, bool Sat>
[[gnu::always_inline]] inline T output(T value, T a, T b, T c) {
    if constexpr (Ftz)
        value = flush(value);
    if constexpr (Sat)
        return saturated(value);
    if constexpr (std::is_same_v<T, float>)
        return canonical(value);
    else
        return chosen_nan(value, a, b, c);
}

template <class T, bool Ftz, bool Sat, auto F>
void arithmetic1(Context &context, const Op &op) {
    using C = Container<T>;
    const HostRounding rounding(op.rounding);
    const C *a = row<C>(context, op.o[1]);
    each<C>(context, op.o[0], [=](unsigned i) {
        const T x = input<T, Ftz>(unpack<T>(a[i]));
        return pack<T>(output<T, Ftz, Sat>(F(x), x, x, x));
    });
}
template <class T, bool Ftz, bool Sat, auto F>
void arithmetic2(Context &context, const Op &op) {
    using C = Container<T>;
    const HostRounding rounding(op.rounding);
    const C *a = row<C>(context, op.o[1]);
    const C *b = row<C>(context, op.o[2]);
    each<C>(context, op.o[0], [=](unsigned i) {
        const T x = input<T, Ftz>(unpack<T>(a[i]));
        const T y = input<T, Ftz>(unpack<T>(b[i]));
        return pack<T>(output<T, Ftz, Sat>(F(x, y), x, y, y));
    });
}
template <class T, bool Ftz, bool Sat, auto F>
void arithmetic3(Context &context, const Op &op) {
    using C = Container<T>;
    const HostRounding rounding(op.rounding);
    const C *a = row<C>(context, op.o[1]);
    const C *b = row<C>(context, op.o[2]);
    const C *c = row<C>(context, op.o[3]);
    each<C>(context, op.o[0], [=](unsigned i) {
        const T x = input<T, Ftz>(unpack<T>(a[i]));
        const T y = input<T, Ftz>(unpack<T>(b[i]));
        const T z = input<T, Ftz>(unpack<T>(c[i]));
        return pack<T>(output<T, Ftz, Sat>(F(x, y, z), x, y, z));
    });
}

template <class T>
[[gnu::always_inline]] inline T fused(T a, T b, T c) {
    if constexpr (std::is_same_v<T, float>)
        return __builtin_fmaf(a, b, c);
    else
        return __builtin_fma(a, b, c);
}
template <class T>
[[gnu::always_inline]] inline T root(T a) {
    if constexpr (std::is_same_v<T, float>)
        return __builtin_sqrtf(a);
    else
        return __builtin_sqrt(a);
}

template <bool Ftz, bool Sat, class T>
Handler basic(Opcode opcode) {
    switch (opcode) {
    case Opcode::add:
        return arithmetic2<T, Ftz, Sat, [](T a, T b) { return a + b; }>;
    case Opcode::sub:
        return arithmetic2<T, Ftz, Sat, [](T a, T b) { return a - b; }>;
    case Opcode::mul:
        return arithmetic2<T, Ftz, Sat, [](T a, T b) { return a * b; }>;
    case Opcode::fma:
    case Opcode::mad:
        return arithmetic3<T, Ftz, Sat, fused<T>>;
    case Opcode::div:
        return arithmetic2<T, Ftz, Sat, [](T a, T b) { return a / b; }>;
    case Opcode::rcp:
        return arithmetic1<T, Ftz, Sat, [](T a) { return T{1} / a; }>;
    case Opcode::sqrt:
        return arithmetic1<T, Ftz, Sat, root<T>>;
    default:
        return nullptr;
    }
}

// Approximations. Each is a range reduction that is exact or nearly so, and a polynomial in f64 with an error
// far below half a unit of f32's last place.

// 2^x: x = n + r, |r| <= 1/2; the Taylor series of exp(r ln 2) to r^11.
[[gnu::always_inline]] inline double power_of_two(double x) {
    const double clamped = x < -1074. ? -1074. : (x > 1025. ? 1025. : x);
    // Adding 1.5 * 2^52 rounds to an integer, which is then in the low bits.
    constexpr double magic = 6755399441055744.;
    const double shifted = clamped + magic;
    const double n = shifted - magic;
    const double r = (clamped - n) * 0.693147180559945309417;
    double p = 1. / 39916800.;
    p = p * r + 1. / 3628800.;
    p = p * r + 1. / 362880.;
    p = p * r + 1. / 40320.;
    p = p * r + 1. / 5040.;
    p = p * r + 1. / 720.;
    p = p * r + 1. / 120.;
    p = p * r + 1. / 24.;
    p = p * r + 1. / 6.;
    p = p * r + 0.5;
    p = p * r + 1.;
    p = p * r + 1.;
    // Two factors: one alone would not be normal for the smallest and largest exponents.
    const auto exponent =
        static_cast<int64_t>(__builtin_bit_cast(uint64_t, shifted) - __builtin_bit_cast(uint64_t, magic));
    const int64_t half = exponent >> 1;
    const double first = __builtin_bit_cast(double, static_cast<uint64_t>(half + 1023) << 52U);
    const double second = __builtin_bit_cast(double, static_cast<uint64_t>(exponent - half + 1023) << 52U);
    return p * first * second;
}
[[gnu::always_inline]] inline float exp2_lane(float x) {
    const auto value = static_cast<float>(power_of_two(static_cast<double>(x)));
    return x == x ? value : x;
}

// log2: x = m 2^e, m in [sqrt(1/2), sqrt(2)); the series of 2 atanh((m-1)/(m+1)).
[[gnu::always_inline]] inline float log2_lane(float x) {
    const auto wide = static_cast<double>(x); // every f32 is a normal f64
    const auto bits = __builtin_bit_cast(uint64_t, wide);
    const uint64_t offset = bits - 0x3FE6A09E00000000ULL;
    const auto e = static_cast<int64_t>(offset) >> 52;
    const double m = __builtin_bit_cast(double, bits - (static_cast<uint64_t>(e) << 52U));
    const double s = (m - 1.) / (m + 1.);
    const double q = s * s;
    double p = 1. / 19.;
    p = p * q + 1. / 17.;
    p = p * q + 1. / 15.;
    p = p * q + 1. / 13.;
    p = p * q + 1. / 11.;
    p = p * q + 1. / 9.;
    p = p * q + 1. / 7.;
    p = p * q + 1. / 5.;
    p = p * q + 1. / 3.;
    p = p * q + 1.;
    const double log = static_cast<double>(static_cast<int32_t>(e)) + 2.88539008177792681472 * s * p;
    auto value = static_cast<float>(log);
    value = x == 0.F ? -__builtin_inff() : value;
    value = x == __builtin_inff() ? x : value;
    return x < 0.F || x != x ? __builtin_nanf("") : value;
}

// Sine and cosine by quadrants: x = n pi/2 + r with pi/2 in two parts.
template <bool Cosine>
[[gnu::always_inline]] inline float sine_lane(float x) {
    const double magnitude = __builtin_fabs(static_cast<double>(x));
    // Beyond, the device's result has no correct digit either; what counts is that it stays within [-1, 1].
    const double wide = magnitude < 1e8 ? static_cast<double>(x) : 0.;
    constexpr double magic = 6755399441055744.;
    const double shifted = wide * 0.636619772367581343076 + magic;
    const double n = shifted - magic;
    const auto quadrant = static_cast<uint64_t>(__builtin_bit_cast(uint64_t, shifted)) + (Cosine ? 1U : 0U);
    const double r = (wide - n * 1.57079632679489655800) - n * 6.12323399573676603587e-17;
    const double q = r * r;
    double s = -1. / 1307674368000.;
    s = s * q + 1. / 6227020800.;
    s = s * q - 1. / 39916800.;
    s = s * q + 1. / 362880.;
    s = s * q - 1. / 5040.;
    s = s * q + 1. / 120.;
    s = s * q - 1. / 6.;
    s = s * q * r + r;
    double c = -1. / 87178291200.;
    c = c * q + 1. / 479001600.;
    c = c * q - 1. / 3628800.;
    c = c * q + 1. / 40320.;
    c = c * q - 1. / 720.;
    c = c * q + 1. / 24.;
    c = c * q - 0.5;
    c = c * q + 1.;
    const double picked = (quadrant & 1U) != 0 ? c : s;
    const auto value = static_cast<float>((quadrant & 2U) != 0 ? -picked : picked);
    return magnitude <= 3.5e38 ? value : __builtin_nanf("");
}

[[gnu::always_inline]] inline float tanh_lane(float x) {
    const auto wide = static_cast<double>(x);
    // 1 - 2 / (e^2x + 1); near zero the difference would lose digits: the continued series there.
    const double e = power_of_two(wide * 2.88539008177792681472);
    const double far = 1. - 2. / (e + 1.);
    const double q = wide * wide;
    double p = -1382. / 155925.;
    p = p * q + 62. / 2835.;
    p = p * q - 17. / 315.;
    p = p * q + 2. / 15.;
    p = p * q - 1. / 3.;
    const double near = wide + wide * q * p;
    const auto value = static_cast<float>(q < 0.01 ? near : far);
    return x == x ? value : x;
}

// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 look at and give the upper half only; what they start from is
// refined by the program.
[[gnu::always_inline]] inline double upper_half(double value) {
    return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, value) & 0xFFFFFFFF00000000ULL);
}
[[gnu::always_inline]] inline double flush64(double value) {
    const auto bits = __builtin_bit_cast(uint64_t, value);
    return __builtin_bit_cast(double,
                              (bits & 0x7FF0000000000000ULL) == 0 ? bits & 0x8000000000000000ULL : bits);
}
[[gnu::always_inline]] inline double reciprocal_estimate(double x) {
    return upper_half(flush64(1. / flush64(upper_half(x))));
}
[[gnu::always_inline]] inline double root_estimate(double x) {
    return upper_half(1. / __builtin_sqrt(flush64(upper_half(x))));
}
[[gnu::always_inline]] inline double root_reciprocal(double x) { return 1. / __builtin_sqrt(x); }
[[gnu::always_inline]] inline float root_reciprocal_lane(float x) {
    return static_cast<float>(1. / __builtin_sqrt(static_cast<double>(x)));
}

template <bool Ftz>
Handler approximation(Opcode opcode) {
    switch (opcode) {
    case Opcode::ex2:
        return arithmetic1<float, Ftz, false, exp2_lane>;
    case Opcode::lg2:
        return arithmetic1<float, Ftz, false, log2_lane>;
    case Opcode::sin:
        return arithmetic1<float, Ftz, false, sine_lane<false>>;
    case Opcode::cos:
        return arithmetic1<float, Ftz, false, sine_lane<true>>;
    case Opcode::tanh:
        return arithmetic1<float, Ftz, false, tanh_lane>;
    case Opcode::rsqrt:
        return arithmetic1<float, Ftz, false, root_reciprocal_lane>;
    default:
        return nullptr;
    }
}

// min and max: -0 is less than +0; of a number and a NaN the number, unless Nan.
template <class T, bool Largest, bool Ftz, bool Nan>
[[gnu::always_inline]] inline T extreme(T a, T b) {
    using C = Container<T>;
    const T x = input<T, Ftz>(a);
    const T y = input<T, Ftz>(b);
    const C both = Largest ? pack<T>(x) & pack<T>(y) : pack<T>(x) | pack<T>(y);
    const T equal = unpack<T>(both); // only the sign of zero can differ
    T value = Largest ? (x > y ? x : y) : (x < y ? x : y);
    value = x == y ? equal : value;
    if constexpr (Nan) {
        const T nan =
            unpack<T>(static_cast<C>(sizeof(T) == 4 ? static_cast<uint64_t>(kNan32) : 0x7FFFFFFFFFFFFFFFULL));
        return x != x || y != y ? nan : value;
    }
    value = x != x ? y : value;
    value = y != y ? x : value;
    if constexpr (sizeof(T) == 4)
        return canonical(value);
    else
        return value;
}

template <class T>
[[gnu::always_inline]] inline T with_sign(T magnitude, T sign) {
    using C = Container<T>;
    constexpr C top = C{1} << (8 * sizeof(T) - 1);
    return unpack<T>(static_cast<C>((pack<T>(magnitude) & ~top) | (pack<T>(sign) & top)));
}
// .xorsign.abs: of the magnitudes, with the product's sign
template <class T, bool Largest, bool Ftz, bool Nan>
[[gnu::always_inline]] inline T extreme_signed(T a, T b) {
    const T value = extreme<T, Largest, Ftz, Nan>(with_sign<T>(a, 0), with_sign<T>(b, 0));
    using C = Container<T>;
    return with_sign<T>(value, unpack<T>(static_cast<C>(pack<T>(a) ^ pack<T>(b))));
}
template <class T, bool Largest, bool Ftz, bool Nan>
Handler extreme_handler(const Instruction &instruction, bool three) {
    if (instruction.has(Flag::xorsign))
        return three ? nullptr : binary<T, extreme_signed<T, Largest, Ftz, Nan>>;
    if (!three)
        return binary<T, extreme<T, Largest, Ftz, Nan>>;
    if (instruction.has(Flag::abs))
        return ternary<T, [](T a, T b, T c) {
            return extreme<T, Largest, Ftz, Nan>(
                extreme<T, Largest, Ftz, Nan>(with_sign<T>(a, 0), with_sign<T>(b, 0)), with_sign<T>(c, 0));
        }>;
    return ternary<T, [](T a, T b, T c) {
        return extreme<T, Largest, Ftz, Nan>(extreme<T, Largest, Ftz, Nan>(a, b), c);
    }>;
}
template <class T, bool Largest>
Handler select_extreme(const Instruction &instruction, bool three) {
    if constexpr (std::is_same_v<T, float>)
        if (instruction.has(Flag::ftz))
            return instruction.has(Flag::nan) ? extreme_handler<T, Largest, true, true>(instruction, three)
                                              : extreme_handler<T, Largest, true, false>(instruction, three);
    return instruction.has(Flag::nan) ? extreme_handler<T, Largest, false, true>(instruction, three)
                                      : extreme_handler<T, Largest, false, false>(instruction, three);
}

template <class T>
void test_property(Context &context, const Op &op) {
    using C = Container<T>;
    const C *a = row<C>(context, op.o[1]);
    constexpr unsigned fraction = sizeof(T) == 4 ? 23 : 52;
    constexpr C sign = C{1} << (8 * sizeof(T) - 1);
    constexpr C infinity = (sign - 1) >> fraction << fraction;
    const auto what = static_cast<ptx::Operation>(op.mode);
    const uint32_t bits = gather_bits([=](unsigned i) {
        const C value = a[i] & (sign - 1);
        switch (what) {
        case ptx::Operation::finite:
            return value < infinity;
        case ptx::Operation::infinite:
            return value == infinity;
        case ptx::Operation::number:
            return value <= infinity;
        case ptx::Operation::notanumber:
            return value > infinity;
        case ptx::Operation::normal:
            return value < infinity && (value & infinity) != 0;
        case ptx::Operation::subnormal:
            return value != 0 && (value & infinity) == 0;
        default:
            return false;
        }
    });
    set_predicate(context, op.o[0], bits);
}

template <bool Sat, class T>
Handler by_ftz(const Instruction &instruction) {
    if constexpr (std::is_same_v<T, float>)
        if (instruction.has(Flag::ftz))
            return basic<true, Sat, T>(instruction.opcode);
    return basic<false, Sat, T>(instruction.opcode);
}

// Two f32 in a row of 8 bytes: the rows of 4 bytes lie beside each other, lane by lane.
template <bool Ftz, auto F>
void pair2(Context &context, const Op &op) {
    const HostRounding rounding(op.rounding);
    const uint64_t *a = row<uint64_t>(context, op.o[1]);
    const uint64_t *b = row<uint64_t>(context, op.o[2]);
    const uint64_t *c = op.o[3] == kAbsent ? a : row<uint64_t>(context, op.o[3]);
    const auto part = [](uint64_t x, uint64_t y, uint64_t z, unsigned shift) {
        const auto of = [=](uint64_t bits) {
            return input<float, Ftz>(unpack<float>(static_cast<uint32_t>(bits >> shift)));
        };
        const float value = F(of(x), of(y), of(z));
        return static_cast<uint64_t>(pack<float>(output<float, Ftz, false>(value, value, value, value)))
               << shift;
    };
    each<uint64_t>(context, op.o[0],
                   [=](unsigned i) { return part(a[i], b[i], c[i], 0) | part(a[i], b[i], c[i], 32); });
}
template <bool Ftz>
Handler pair_handler(Opcode opcode) {
    switch (opcode) {
    case Opcode::add:
        return pair2<Ftz, [](float a, float b, float) { return a + b; }>;
    case Opcode::sub:
        return pair2<Ftz, [](float a, float b, float) { return a - b; }>;
    case Opcode::mul:
        return pair2<Ftz, [](float a, float b, float) { return a * b; }>;
    case Opcode::fma:
        return pair2<Ftz, [](float a, float b, float c) { return __builtin_fmaf(a, b, c); }>;
    default:
        return nullptr;
    }
}

template <class T>
Handler select_type(const Instruction &instruction, const Op &op) {
    const bool ftz = instruction.has(Flag::ftz);
    switch (instruction.opcode) {
    case Opcode::min:
        return select_extreme<T, false>(instruction, op.o[3] != kAbsent);
    case Opcode::max:
        return select_extreme<T, true>(instruction, op.o[3] != kAbsent);
    case Opcode::abs: // of NaNs too; f32's payloads are left alone, as the device does
        if constexpr (std::is_same_v<T, float>)
            if (ftz)
                return unary<T, [](T a) { return with_sign<T>(flush(a), 0); }>;
        return unary<T, [](T a) { return with_sign<T>(a, 0); }>;
    case Opcode::neg:
        if constexpr (std::is_same_v<T, float>)
            if (ftz)
                return unary<T, [](T a) { return -flush(a); }>;
        return unary<T, [](T a) { return -a; }>;
    case Opcode::copysign: // the sign of the first operand, the magnitude of the second
        return binary<T, [](T a, T b) { return with_sign<T>(b, a); }>;
    case Opcode::testp:
        return test_property<T>;
    default:
        return nullptr;
    }
}

} // namespace

Handler select_floating(const Instruction &instruction, const Op &op) {
    const Type type = instruction.types[0];
    const bool ftz = instruction.has(Flag::ftz);
    if (type == Type::f32x2)
        return ftz ? pair_handler<true>(instruction.opcode) : pair_handler<false>(instruction.opcode);
    if (type != Type::f32 && type != Type::f64)
        return nullptr;
    if (type == Type::f64) {
        if (instruction.mode == ptx::Mode::approx || (instruction.opcode == Opcode::rsqrt))
            return instruction.opcode == Opcode::rcp ? unary<double, reciprocal_estimate>
                   : ftz                             ? unary<double, root_estimate>
                                                     : unary<double, root_reciprocal>;
        if (const Handler handler = by_ftz<false, double>(instruction); handler != nullptr)
            return instruction.has(Flag::sat) ? by_ftz<true, double>(instruction) : handler;
        return select_type<double>(instruction, op);
    }
    if (const Handler handler =
            ftz ? approximation<true>(instruction.opcode) : approximation<false>(instruction.opcode);
        handler != nullptr)
        return handler;
    if (const Handler handler = by_ftz<false, float>(instruction); handler != nullptr)
        return instruction.has(Flag::sat) ? by_ftz<true, float>(instruction) : handler;
    return select_type<float>(instruction, op);
}

} // namespace singularity::softgpu::engine::SINGULARITY_LANES
