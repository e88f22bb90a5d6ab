// SPDX-License-Identifier: GPL-2.0-or-later
// Binary formats of 16 bits and fewer, one value at a time; what lanes_float.hpp does for whole rows.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace singularity::softgpu::engine {

template <unsigned Exponent, unsigned Fraction>
struct SmallFloat {
    static constexpr int kBias = (1 << (Exponent - 1)) - 1;
    static constexpr std::uint32_t kSign = 1U << (Exponent + Fraction);
    static constexpr std::uint32_t kInfinity = ((1U << Exponent) - 1) << Fraction;

    [[nodiscard]] static double to_double(std::uint32_t bits) {
        const double sign = (bits & kSign) != 0 ? -1. : 1.;
        const auto exponent = static_cast<int>((bits & kInfinity) >> Fraction);
        const auto fraction = static_cast<double>(bits & ((1U << Fraction) - 1));
        if ((bits & kInfinity) == kInfinity)
            return fraction != 0 ? std::bit_cast<double>(0x7FF8000000000000ULL)
                                 : sign * std::bit_cast<double>(0x7FF0000000000000ULL);
        if (exponent == 0)
            return sign * std::ldexp(fraction, 1 - kBias - static_cast<int>(Fraction));
        return sign * std::ldexp(fraction + (1U << Fraction), exponent - kBias - static_cast<int>(Fraction));
    }

    // To nearest, ties to even.
    [[nodiscard]] static std::uint32_t from_double(double value) {
        const std::uint32_t sign = std::signbit(value) ? kSign : 0;
        if (value != value)
            return kSign - 1;
        const double magnitude = std::fabs(value);
        if (magnitude == 0)
            return sign;
        int exponent = 0;
        std::frexp(magnitude, &exponent);
        --exponent; // magnitude = 1.x * 2^exponent
        if (exponent > kBias)
            return sign | kInfinity;
        const int unit = (exponent < 1 - kBias ? 1 - kBias : exponent) - static_cast<int>(Fraction);
        const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
        const std::uint32_t biased =
            exponent < 1 - kBias ? 0 : static_cast<std::uint32_t>(exponent + kBias - 1) << Fraction;
        const std::uint32_t bits = biased + units;
        return sign | (bits >= kInfinity ? kInfinity : bits);
    }
};

} // namespace singularity::softgpu::engine
