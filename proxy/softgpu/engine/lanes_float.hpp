// SPDX-License-Identifier: GPL-2.0-or-later
// IEEE details that several of the lanes_*.cpp need: what a NaN becomes, subnormals, small formats.
#pragma once

#include "engine/lanes.hpp"

namespace singularity::softgpu::engine::SINGULARITY_LANES {

inline constexpr std::uint32_t kNan32 = 0x7FFFFFFFU; // what every f32 instruction that makes a NaN makes
inline constexpr std::uint64_t kNan64 = 0xFFF8000000000000ULL;

[[gnu::always_inline]] inline float flush(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    return __builtin_bit_cast(float, (bits & 0x7F800000U) == 0 ? bits & 0x80000000U : bits);
}
[[gnu::always_inline]] inline float canonical(float value) {
    return value == value ? value : __builtin_bit_cast(float, kNan32);
}
[[gnu::always_inline]] inline float saturated(float value) { // NaN becomes +0
    return value > 0.F ? (value < 1.F ? value : 1.F) : 0.F;
}
[[gnu::always_inline]] inline double saturated(double value) {
    return value > 0. ? (value < 1. ? value : 1.) : 0.;
}

// A double with its last bit set where it was not exact, so that rounding it once more rounds as if from the
// exact value (Boldo and Melquiond, "When double rounding is odd"). error: of what sign the lost part is.
[[gnu::always_inline]] inline double round_to_odd(double value, double error) {
    const auto bits = __builtin_bit_cast(std::uint64_t, value);
    const bool finite = (bits & 0x7FF0000000000000ULL) != 0x7FF0000000000000ULL;
    const bool inexact = finite && error != 0 && error == error && (bits & 1U) == 0;
    const bool away = (error > 0) == (value > 0);
    const std::uint64_t odd = away ? bits + 1 : bits - 1;
    return __builtin_bit_cast(double, inexact &&value != 0 ? odd : bits);
}

// a * b + c where the product is exact in double: of halves.
[[gnu::always_inline]] inline double exact_fma_odd(double a, double b, double c) {
    const double product = a * b;
    const double sum = product + c;
    const double shadow = sum - product; // Knuth's TwoSum
    const double error = (product - (sum - shadow)) + (c - shadow);
    return round_to_odd(sum, error);
}

enum class Round : std::uint8_t { nearest, zero, down, up, away };

// A binary format of Exponent and Fraction bits, in the low bits of a word.
template <unsigned Exponent, unsigned Fraction>
struct Small {
    static constexpr int kBias = (1 << (Exponent - 1)) - 1;
    static constexpr std::uint32_t kSign = 1U << (Exponent + Fraction);
    static constexpr std::uint32_t kInfinity = ((1U << Exponent) - 1) << Fraction;
    static constexpr std::uint32_t kNan = kSign - 1; // all ones but the sign
    static constexpr std::uint32_t kLargest = kInfinity - 1;

    [[gnu::always_inline]] static double to_double(std::uint32_t bits) {
        const std::uint64_t sign = (bits & kSign) != 0 ? 0x8000000000000000ULL : 0;
        const std::uint32_t exponent = (bits >> Fraction) & ((1U << Exponent) - 1);
        const std::uint64_t fraction = bits & ((1U << Fraction) - 1);
        const bool special = exponent == (1U << Exponent) - 1;
        const std::uint64_t place = special ? 0x7FFU : exponent + 1023U - static_cast<unsigned>(kBias);
        const std::uint64_t normal = (place << 52U) | (fraction << (52U - Fraction));
        // What a subnormal is worth: fraction times the least subnormal.
        constexpr double least = __builtin_bit_cast(
            double, static_cast<std::uint64_t>(1024 - kBias - static_cast<int>(Fraction)) << 52U);
        const double subnormal = static_cast<double>(static_cast<std::int32_t>(fraction)) * least;
        return __builtin_bit_cast(
            double, (exponent == 0 ? __builtin_bit_cast(std::uint64_t, subnormal) : normal) | sign);
    }

    // Rounds once; overflow gives infinity or the largest number, as the rounding says.
    template <Round How>
    [[gnu::always_inline]] static std::uint32_t from_double(double value) {
        const auto bits = __builtin_bit_cast(std::uint64_t, value);
        const std::uint32_t sign = (bits >> 63U) != 0 ? kSign : 0;
        const std::uint64_t magnitude = bits & 0x7FFFFFFFFFFFFFFFULL;
        const int exponent = static_cast<int>(magnitude >> 52U) - 1023;
        const std::uint64_t significand = (magnitude & 0xFFFFFFFFFFFFFULL) | 0x10000000000000ULL;
        // How many low bits of the 53-bit significand are cut off.
        constexpr int least = 1 - kBias;
        const int deep = exponent < least ? least - exponent : 0;
        int cut = 52 - static_cast<int>(Fraction) + deep;
        cut = cut > 63 ? 63 : cut;
        const std::uint64_t kept = significand >> cut;
        const std::uint64_t lost = significand & ((std::uint64_t{1} << cut) - 1);
        const std::uint64_t half = std::uint64_t{1} << (cut - 1);
        bool up = false;
        switch (How) {
        case Round::nearest:
            up = lost > half || (lost == half && (kept & 1U) != 0);
            break;
        case Round::away:
            up = lost >= half;
            break;
        case Round::zero:
            break;
        case Round::down:
            up = sign != 0 && lost != 0;
            break;
        case Round::up:
            up = sign == 0 && lost != 0;
            break;
        }
        // A carry out of the fraction is a step of the exponent: the encoding makes one of the other.
        const std::uint64_t biased =
            deep != 0 ? 0 : static_cast<std::uint64_t>(exponent + kBias - 1) << Fraction;
        std::uint64_t result = biased + kept + (up ? 1U : 0U);
        const bool overflow = exponent > kBias || result >= kInfinity;
        const bool to_largest =
            How == Round::zero || (How == Round::down && sign == 0) || (How == Round::up && sign != 0);
        result = overflow ? (to_largest ? kLargest : kInfinity) : result;
        result = magnitude == 0 ? 0 : result;
        result = magnitude == 0x7FF0000000000000ULL ? kInfinity : result;
        const auto encoded = static_cast<std::uint32_t>(result) | sign;
        return value == value ? encoded : kNan;
    }

    [[gnu::always_inline]] static bool is_nan(std::uint32_t bits) { return (bits & (kSign - 1)) > kInfinity; }
    [[gnu::always_inline]] static std::uint32_t flush(std::uint32_t bits) {
        return (bits & kInfinity) == 0 ? bits & kSign : bits;
    }
};
using Half = Small<5, 10>;
using Brain = Small<8, 7>;

} // namespace singularity::softgpu::engine::SINGULARITY_LANES
