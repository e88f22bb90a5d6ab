// SPDX-License-Identifier: GPL-2.0-or-later
// What a collective has to give, computed on the host, one element at a time, in the order of ranks and
// rounded to the type after each step. Conversions are CUDA's own, so this shares nothing with what is
// tested.
#pragma once

#include "workload.cuh"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <nccl.h>

namespace reference {

// How a type's elements are stored, and in what they are computed.
template <class Number>
struct Whole {
    using Storage = Number;
    static constexpr bool floats = false;
};
struct Half {
    using Storage = std::uint16_t;
    static constexpr bool floats = true;
    static float load(Storage bits) { return __half2float(__half(__half_raw{bits})); }
    static Storage store(float value) { return __half_raw(__float2half(value)).x; }
};
struct BFloat {
    using Storage = std::uint16_t;
    static constexpr bool floats = true;
    static float load(Storage bits) { return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{bits})); }
    static Storage store(float value) { return __nv_bfloat16_raw(__float2bfloat16(value)).x; }
};
template <__nv_fp8_interpretation_t kind>
struct Eight {
    using Storage = std::uint8_t;
    static constexpr bool floats = true;
    static float load(Storage bits) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, kind))); }
    static Storage store(float value) { return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, kind); }
};
template <class Number>
struct Plain {
    using Storage = Number;
    static constexpr bool floats = true;
    static Number load(Storage value) { return value; }
    static Storage store(Number value) { return value; }
};

// call(Type{}) for an NCCL type.
template <class Call>
auto with_type(ncclDataType_t type, Call call) {
    switch (type) {
    case ncclInt8:
        return call(Whole<std::int8_t>{});
    case ncclUint8:
        return call(Whole<std::uint8_t>{});
    case ncclInt32:
        return call(Whole<std::int32_t>{});
    case ncclUint32:
        return call(Whole<std::uint32_t>{});
    case ncclInt64:
        return call(Whole<std::int64_t>{});
    case ncclUint64:
        return call(Whole<std::uint64_t>{});
    case ncclFloat16:
        return call(Half{});
    case ncclFloat32:
        return call(Plain<float>{});
    case ncclFloat64:
        return call(Plain<double>{});
    case ncclBfloat16:
        return call(BFloat{});
    case ncclFloat8e4m3:
        return call(Eight<__NV_E4M3>{});
    default:
        return call(Eight<__NV_E5M2>{});
    }
}

inline std::size_t size_of(ncclDataType_t type) {
    return with_type(type, [](auto one) { return sizeof(typename decltype(one)::Storage); });
}

using Bytes = std::vector<unsigned char>;

// The input of a rank: numbers that round when they are added up, none of them infinite after eight factors.
inline Bytes input_of(int rank, ncclDataType_t type, std::size_t count, unsigned salt) {
    workload::Random random(std::uint64_t{salt} * 1000003 + static_cast<unsigned>(rank) * 8191U + 17);
    return with_type(type, [&](auto one) {
        using Type = decltype(one);
        std::vector<typename Type::Storage> values(count);
        for (auto &value : values) {
            if constexpr (Type::floats)
                value = Type::store((static_cast<float>(random.below(4001)) - 2000.0F) / 977.0F);
            else
                value = static_cast<typename Type::Storage>(random.next());
        }
        Bytes bytes(count * sizeof(typename Type::Storage));
        std::memcpy(bytes.data(), values.data(), bytes.size());
        return bytes;
    });
}

enum class Operation { sum, product, largest, smallest, average, scaled_sum };

template <class Type>
struct Arithmetic {
    using Storage = typename Type::Storage;
    static Storage add(Storage a, Storage b) {
        if constexpr (Type::floats)
            return Type::store(Type::load(a) + Type::load(b));
        else
            return static_cast<Storage>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    }
    static Storage multiply(Storage a, Storage b) {
        if constexpr (Type::floats)
            return Type::store(Type::load(a) * Type::load(b));
        else
            return static_cast<Storage>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    }
    static bool less(Storage a, Storage b) {
        if constexpr (Type::floats)
            return Type::load(a) < Type::load(b);
        else
            return a < b;
    }
};

// All ranks' inputs, one behind the other in `inputs`, reduced. scalar: of a scaled sum.
inline Bytes reduce(const std::vector<Bytes> &inputs, ncclDataType_t type, Operation operation,
                    const void *scalar) {
    return with_type(type, [&](auto one) {
        using Type = decltype(one);
        using Storage = typename Type::Storage;
        using Math = Arithmetic<Type>;
        const auto ranks = inputs.size();
        Storage factor{};
        if (operation == Operation::scaled_sum)
            std::memcpy(&factor, scalar, sizeof(factor));
        if constexpr (Type::floats)
            if (operation == Operation::average)
                factor =
                    Type::store(static_cast<decltype(Type::load(factor))>(1.0 / static_cast<double>(ranks)));
        const bool scales =
            operation == Operation::scaled_sum || (Type::floats && operation == Operation::average);
        Bytes out(inputs.front().size());
        for (std::size_t at = 0; at < out.size(); at += sizeof(Storage)) {
            Storage result{};
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                Storage value{};
                std::memcpy(&value, &inputs[rank][at], sizeof(value));
                if (scales)
                    value = Math::multiply(factor, value);
                if (rank == 0)
                    result = value;
                else if (operation == Operation::product)
                    result = Math::multiply(result, value);
                else if (operation == Operation::largest)
                    result = Math::less(result, value) ? value : result;
                else if (operation == Operation::smallest)
                    result = Math::less(value, result) ? value : result;
                else
                    result = Math::add(result, value);
            }
            if constexpr (!Type::floats)
                if (operation == Operation::average)
                    result = static_cast<Storage>(result / static_cast<Storage>(ranks));
            std::memcpy(&out[at], &result, sizeof(result));
        }
        return out;
    });
}

} // namespace reference
