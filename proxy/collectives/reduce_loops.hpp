// SPDX-License-Identifier: GPL-2.0-or-later
// The loops of reductions, for one instruction set: included by one source file for each, inside of a
// namespace of its own. No function of another header is called: the linker would keep one copy of it for all
// instruction sets.

// How elements are stored and what is computed with. load and store have no branches, so that loops over them
// are vectors.
template <class Stored, class Computed>
struct Whole {
    using Storage = Stored; // what min and max compare
    using Math = Computed;  // unsigned: sums and products wrap
    static Math load(Storage value) { return static_cast<Math>(value); }
    static Storage store(Math value) { return static_cast<Storage>(value); }
    static constexpr bool kFloats = false;
};

template <class Stored>
struct Plain {
    using Storage = Stored;
    using Math = Stored;
    static Math load(Storage value) { return value; }
    static Storage store(Math value) { return value; }
    static constexpr bool kFloats = true;
};

inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }

// Rounds to nearest, ties to even, into a format of `kMantissa` bits; `magic` has the format's smallest
// number as its last bit.
template <int kMantissa, int kBias>
inline std::uint32_t narrowed(std::uint32_t magnitude) {
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
    static Math load(Storage value) {
        const std::uint32_t magnitude = value & 0x7FFFU;
        const std::uint32_t sign = (value & 0x8000U) << 16;
        const std::uint32_t finite = bits_of(float_of(magnitude << 13) * float_of(0x7780'0000U)); // 2^112
        const std::uint32_t special = 0x7F80'0000U | magnitude << 13;
        return float_of(sign | (magnitude >= 0x7C00U ? special : finite));
    }
    static Storage store(Math value) {
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
    static Math load(Storage value) { return float_of(static_cast<std::uint32_t>(value) << 16); }
    static Storage store(Math value) {
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
    static Math load(Storage value) {
        const std::uint32_t magnitude = value & 0x7FU;
        const std::uint32_t sign = (value & 0x80U) << 24;
        const std::uint32_t finite = bits_of(float_of(magnitude << 20) * float_of(0x7B80'0000U)); // 2^120
        return float_of(sign | (magnitude == 0x7FU ? 0x7FC0'0000U : finite));
    }
    static Storage store(Math value) {
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
    static Math load(Storage value) { return Half::load(static_cast<std::uint16_t>(value << 8)); }
    static Storage store(Math value) {
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
    static typename T::Storage of(typename T::Storage a, typename T::Storage b) {
        return T::store(static_cast<typename T::Math>(T::load(a) + T::load(b)));
    }
};
struct Product {
    template <class T>
    static typename T::Storage of(typename T::Storage a, typename T::Storage b) {
        return T::store(static_cast<typename T::Math>(T::load(a) * T::load(b)));
    }
};
// A number beats what is none, as fmax and fmin have it; whole numbers compare as they are stored.
struct Largest {
    template <class T>
    static typename T::Storage of(typename T::Storage a, typename T::Storage b) {
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
    static typename T::Storage of(typename T::Storage a, typename T::Storage b) {
        if constexpr (T::kFloats) {
            const auto x = T::load(a);
            const auto y = T::load(b);
            return x < y || y != y ? a : b;
        } else {
            return a < b ? a : b;
        }
    }
};

template <class T, class Operation>
void combine(void *into, const void *with, std::size_t count) {
    using Storage = typename T::Storage;
    auto *__restrict__ to = static_cast<Storage *>(into);
    const auto *__restrict__ from = static_cast<const Storage *>(with);
    for (std::size_t index = 0; index < count; ++index)
        to[index] = Operation::template of<T>(to[index], from[index]);
}

template <class T>
void scale(void *values, const void *scalar, std::size_t count) {
    using Storage = typename T::Storage;
    auto *__restrict__ to = static_cast<Storage *>(values);
    const auto factor = *static_cast<const Storage *>(scalar);
    for (std::size_t index = 0; index < count; ++index)
        to[index] = Product::of<T>(factor, to[index]);
}

// Whole numbers only; towards zero. Floating-point averages are scaled beforehand.
template <class T>
void divide(void *values, std::uint32_t divisor, std::size_t count) {
    if constexpr (!T::kFloats) {
        using Storage = typename T::Storage;
        auto *to = static_cast<Storage *>(values);
        // Divisors are small: what does not fit into a byte leaves nothing of a byte.
        for (std::size_t index = 0; index < count; ++index)
            if constexpr (sizeof(Storage) < sizeof(std::int64_t))
                to[index] =
                    static_cast<Storage>(static_cast<std::int64_t>(to[index]) / std::int64_t{divisor});
            else
                to[index] = static_cast<Storage>(to[index] / static_cast<Storage>(divisor));
    }
}

template <class T>
void invert(void *scalar, std::uint32_t divisor) {
    auto *to = static_cast<typename T::Storage *>(scalar);
    if constexpr (T::kFloats)
        *to = T::store(static_cast<typename T::Math>(1.0 / divisor));
    else
        *to = 1;
}

template <class T>
constexpr Loops loops_of() {
    return {.combine = {&combine<T, Sum>, &combine<T, Product>, &combine<T, Largest>, &combine<T, Smallest>},
            .scale = &scale<T>,
            .divide = &divide<T>,
            .invert = &invert<T>,
            .size = sizeof(typename T::Storage),
            .floats = T::kFloats};
}

// In the order of ncclDataType_t.
constexpr Loops kLoops[] = {
    loops_of<Whole<std::int8_t, std::uint32_t>>(),
    loops_of<Whole<std::uint8_t, std::uint32_t>>(),
    loops_of<Whole<std::int32_t, std::uint32_t>>(),
    loops_of<Whole<std::uint32_t, std::uint32_t>>(),
    loops_of<Whole<std::int64_t, std::uint64_t>>(),
    loops_of<Whole<std::uint64_t, std::uint64_t>>(),
    loops_of<Half>(),
    loops_of<Plain<float>>(),
    loops_of<Plain<double>>(),
    loops_of<BFloat>(),
    loops_of<E4M3>(),
    loops_of<E5M2>(),
};
