// SPDX-License-Identifier: GPL-2.0-or-later
// How elements are stored, and the steps of reductions, one element at a time: for processors and for
// devices, which get the same bits. Included inside of a namespace of each user's own, who has included
// <cstdint> and <tuple> outside of it. No function of another header is called: the linker would keep one
// copy of it for all instruction sets.
//
// A compiler for a device defines what its functions need in front of them. No step may be contracted with
// another one (-ffp-contract=off, -fmad=false).
#ifndef SINGULARITY_ELEMENT
#define SINGULARITY_ELEMENT
#endif

// What is stored and what is computed with. load and store have no branches, so that loops over them
// are vectors.
template <class Stored, class Computed>
struct Whole {
    using Storage = Stored; // what min and max compare
    using Math = Computed;  // unsigned: sums and products wrap
    SINGULARITY_ELEMENT static Math load(Storage value) { return static_cast<Math>(value); }
    SINGULARITY_ELEMENT static Storage store(Math value) { return static_cast<Storage>(value); }
    static constexpr bool kFloats = false;
};

// What is no number has one form: processors and devices make others, of operands or of their own.
template <class Stored, class Bits>
struct Plain {
    using Storage = Stored;
    using Math = Stored;
    SINGULARITY_ELEMENT static Math load(Storage value) { return value; }
    SINGULARITY_ELEMENT static Storage store(Math value) {
        constexpr auto kNone = static_cast<Bits>(static_cast<Bits>(-1) >> 1);
        return value == value ? value : __builtin_bit_cast(Storage, kNone);
    }
    static constexpr bool kFloats = true;
};

SINGULARITY_ELEMENT inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
SINGULARITY_ELEMENT inline std::uint32_t bits_of(float value) {
    return __builtin_bit_cast(std::uint32_t, value);
}

// Rounds to nearest, ties to even, into a format of `kMantissa` bits; `magic` has the format's smallest
// number as its last bit.
template <int kMantissa, int kBias>
SINGULARITY_ELEMENT inline std::uint32_t narrowed(std::uint32_t magnitude) {
    constexpr int kShift = 23 - kMantissa;
    constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(127 - kBias + 1) << 23;
    constexpr std::uint32_t kMagic = static_cast<std::uint32_t>(127 - kBias + 1 + kShift) << 23;
    const std::uint32_t small = bits_of(float_of(magnitude) + float_of(kMagic)) - kMagic;
    const std::uint32_t odd = (magnitude >> kShift) & 1U;
    const std::uint32_t normal = (magnitude - (static_cast<std::uint32_t>(127 - kBias) << 23) +
                                  ((std::uint32_t{1} << (kShift - 1)) - 1) + odd) >>
                                 kShift;
    return magnitude < kSmallestNormal ? small : normal;
}

struct Half {
    using Storage = std::uint16_t;
    using Math = float;
    static constexpr bool kFloats = true;
    SINGULARITY_ELEMENT static Math load(Storage value) {
        const std::uint32_t magnitude = value & 0x7FFFU;
        const std::uint32_t sign = (value & 0x8000U) << 16;
        const std::uint32_t finite = bits_of(float_of(magnitude << 13) * float_of(0x7780'0000U)); // 2^112
        const std::uint32_t special = 0x7F80'0000U | magnitude << 13;
        return float_of(sign | (magnitude >= 0x7C00U ? special : finite));
    }
    SINGULARITY_ELEMENT static Storage store(Math value) {
        const std::uint32_t bits = bits_of(value);
        const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
        const std::uint32_t sign = (bits >> 16) & 0x8000U;
        const std::uint32_t finite = sign | narrowed<10, 15>(magnitude);
        const std::uint32_t large = magnitude > 0x7F80'0000U ? 0x7FFFU : sign | 0x7C00U;
        return static_cast<Storage>(magnitude >= 0x4780'0000U ? large : finite); // 65536
    }
};

struct BFloat {
    using Storage = std::uint16_t;
    using Math = float;
    static constexpr bool kFloats = true;
    SINGULARITY_ELEMENT static Math load(Storage value) {
        return float_of(static_cast<std::uint32_t>(value) << 16);
    }
    SINGULARITY_ELEMENT static Storage store(Math value) {
        const std::uint32_t bits = bits_of(value);
        const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
        return static_cast<Storage>((bits & 0x7FFF'FFFFU) > 0x7F80'0000U ? 0x7FFFU : rounded);
    }
};

// The two formats of 8 bits saturate: what is larger than the largest finite number becomes that.
struct E4M3 {
    using Storage = std::uint8_t;
    using Math = float;
    static constexpr bool kFloats = true;
    SINGULARITY_ELEMENT static Math load(Storage value) {
        const std::uint32_t magnitude = value & 0x7FU;
        const std::uint32_t sign = (value & 0x80U) << 24;
        const std::uint32_t finite = bits_of(float_of(magnitude << 20) * float_of(0x7B80'0000U)); // 2^120
        return float_of(sign | (magnitude == 0x7FU ? 0x7FC0'0000U : finite));
    }
    SINGULARITY_ELEMENT static Storage store(Math value) {
        const std::uint32_t bits = bits_of(value);
        const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
        const std::uint32_t sign = (bits >> 24) & 0x80U;
        constexpr std::uint32_t kLargest = 0x43E0'0000U; // 448
        const std::uint32_t finite = sign | narrowed<3, 7>(magnitude < kLargest ? magnitude : kLargest);
        return static_cast<Storage>(magnitude > 0x7F80'0000U ? 0x7FU : finite);
    }
};

struct E5M2 {
    using Storage = std::uint8_t;
    using Math = float;
    static constexpr bool kFloats = true;
    SINGULARITY_ELEMENT static Math load(Storage value) {
        return Half::load(static_cast<std::uint16_t>(value << 8));
    }
    SINGULARITY_ELEMENT static Storage store(Math value) {
        const std::uint32_t bits = bits_of(value);
        const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
        const std::uint32_t sign = (bits >> 24) & 0x80U;
        constexpr std::uint32_t kLargest = 0x4760'0000U; // 57344
        const std::uint32_t finite = sign | narrowed<2, 15>(magnitude < kLargest ? magnitude : kLargest);
        return static_cast<Storage>(magnitude > 0x7F80'0000U ? 0x7FU : finite);
    }
};

struct Sum {
    template <class T>
    SINGULARITY_ELEMENT static typename T::Storage of(typename T::Storage a, typename T::Storage b) {
        return T::store(static_cast<typename T::Math>(T::load(a) + T::load(b)));
    }
};
struct Product {
    template <class T>
    SINGULARITY_ELEMENT static typename T::Storage of(typename T::Storage a, typename T::Storage b) {
        return T::store(static_cast<typename T::Math>(T::load(a) * T::load(b)));
    }
};
// A number beats what is none, as fmax and fmin have it; whole numbers compare as they are stored.
struct Largest {
    template <class T>
    SINGULARITY_ELEMENT static typename T::Storage of(typename T::Storage a, typename T::Storage b) {
        if constexpr (T::kFloats) {
            const auto x = T::load(a);
            const auto y = T::load(b);
            return x > y || y != y ? a : b;
        } else {
            return a > b ? a : b;
        }
    }
};
struct Smallest {
    template <class T>
    SINGULARITY_ELEMENT static typename T::Storage of(typename T::Storage a, typename T::Storage b) {
        if constexpr (T::kFloats) {
            const auto x = T::load(a);
            const auto y = T::load(b);
            return x < y || y != y ? a : b;
        } else {
            return a < b ? a : b;
        }
    }
};

// Whole numbers only; towards zero. Divisors are small: what does not fit into a byte leaves nothing of a
// byte.
template <class T>
SINGULARITY_ELEMENT inline typename T::Storage divided(typename T::Storage value, std::uint32_t divisor) {
    using Storage = typename T::Storage;
    if constexpr (sizeof(Storage) < sizeof(std::int64_t))
        return static_cast<Storage>(static_cast<std::int64_t>(value) / std::int64_t{divisor});
    else
        return static_cast<Storage>(value / static_cast<Storage>(divisor));
}

// In the order of ncclDataType_t.
using Elements = std::tuple<Whole<std::int8_t, std::uint32_t>, Whole<std::uint8_t, std::uint32_t>,
                            Whole<std::int32_t, std::uint32_t>, Whole<std::uint32_t, std::uint32_t>,
                            Whole<std::int64_t, std::uint64_t>, Whole<std::uint64_t, std::uint64_t>, Half,
                            Plain<float, std::uint32_t>, Plain<double, std::uint64_t>, BFloat, E4M3, E5M2>;
