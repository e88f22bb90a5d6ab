// SPDX-License-Identifier: GPL-2.0-or-later
#include "reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <fmt/format.h>

namespace singularity::test {

namespace {

using protocol::CollectiveKind;

// One element of each type: to and from what it is computed with.
template <class Stored, class Computed>
struct Number {
    using Storage = Stored;
    static Computed get(const std::byte *from) {
        Stored value;
        std::memcpy(&value, from, sizeof(value));
        return static_cast<Computed>(value);
    }
    static void put(std::byte *to, Computed value) {
        const auto stored = static_cast<Stored>(value);
        std::memcpy(to, &stored, sizeof(stored));
    }
    static constexpr bool kFloats = std::is_floating_point_v<Computed>;
};
using Fp8E4M3 = Number<__nv_fp8_e4m3, float>;
using Fp8E5M2 = Number<__nv_fp8_e5m2, float>;

template <class Function>
auto with_type(std::uint32_t type, Function function) {
    switch (type) {
    case 0:
        return function.template operator()<Number<std::int8_t, std::int8_t>>();
    case 1:
        return function.template operator()<Number<std::uint8_t, std::uint8_t>>();
    case 2:
        return function.template operator()<Number<std::int32_t, std::int32_t>>();
    case 3:
        return function.template operator()<Number<std::uint32_t, std::uint32_t>>();
    case 4:
        return function.template operator()<Number<std::int64_t, std::int64_t>>();
    case 5:
        return function.template operator()<Number<std::uint64_t, std::uint64_t>>();
    case 6:
        return function.template operator()<Number<__half, float>>();
    case 7:
        return function.template operator()<Number<float, float>>();
    case 8:
        return function.template operator()<Number<double, double>>();
    case 9:
        return function.template operator()<Number<__nv_bfloat16, float>>();
    case 10:
        return function.template operator()<Fp8E4M3>();
    default:
        return function.template operator()<Fp8E5M2>();
    }
}

// A OP B as the type has it.
template <class T>
auto combine(std::uint32_t reduction, T a, T b) -> T {
    if constexpr (std::is_integral_v<T>) {
        using Wide = std::make_unsigned_t<std::common_type_t<T, int>>;
        if (reduction == 1)
            return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
        if (reduction != 2 && reduction != 3)
            return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    } else {
        if (reduction == 1)
            return a * b;
        if (reduction != 2 && reduction != 3)
            return a + b;
    }
    return reduction == 2 ? std::max(a, b) : std::min(a, b);
}

// All elements, over all ranks.
Buffer reduced(std::uint32_t type, std::uint32_t reduction, const std::vector<const std::byte *> &operands,
               const std::vector<Buffer> &scalars, std::size_t bytes) {
    Buffer out(bytes);
    with_type(type, [&]<class N>() {
        std::array<std::byte, sizeof(typename N::Storage)> inverse{};
        std::array<std::byte, sizeof(typename N::Storage)> scaled{};
        using Value = decltype(N::get(out.data()));
        if constexpr (N::kFloats)
            N::put(inverse.data(), static_cast<Value>(1.0 / static_cast<double>(operands.size())));
        const auto operand = [&](std::size_t rank, std::size_t at) {
            const auto value = N::get(operands[rank] + at);
            if (reduction == 5)
                N::put(scaled.data(), combine(1, N::get(scalars[rank].data()), value));
            else if (reduction == 4 && N::kFloats)
                N::put(scaled.data(), combine(1, N::get(inverse.data()), value));
            else
                return value;
            return N::get(scaled.data());
        };
        for (std::size_t at = 0; at < bytes; at += sizeof(typename N::Storage)) {
            auto *to = out.data() + at;
            N::put(to, operand(0, at));
            for (std::size_t rank = 1; rank < operands.size(); ++rank)
                N::put(to, combine(reduction, N::get(to), operand(rank, at)));
            if constexpr (!N::kFloats)
                if (reduction == 4) {
                    // The quotient of whole numbers, towards zero; operands may be more than the type can
                    // say.
                    using Wide = std::conditional_t<std::is_signed_v<Value>, std::int64_t, std::uint64_t>;
                    N::put(to, static_cast<Value>(static_cast<Wide>(N::get(to)) /
                                                  static_cast<Wide>(operands.size())));
                }
        }
    });
    return out;
}

} // namespace

std::size_t size_of(std::uint32_t type) {
    return with_type(type, []<class N>() { return sizeof(typename N::Storage); });
}

Buffer values(std::mt19937_64 &random, std::uint32_t type, std::size_t count) {
    const auto size = size_of(type);
    Buffer out(count * size);
    with_type(type, [&]<class N>() {
        using Value = decltype(N::get(out.data()));
        if constexpr (N::kFloats)
            for (std::size_t at = 0; at < out.size(); at += size)
                N::put(out.data() + at,
                       static_cast<Value>(static_cast<double>(random() % 100'000) / 20'000.0 - 2.5));
        else // every value of the type is as likely
            for (std::size_t at = 0; at < out.size(); at += sizeof(std::uint64_t)) {
                const std::uint64_t some = random();
                std::memcpy(out.data() + at, &some, std::min(sizeof(some), out.size() - at));
            }
    });
    return out;
}

std::vector<Buffer> reference(const protocol::CollectiveOperation &operation,
                              const std::vector<Buffer> &inputs, const std::vector<Buffer> &scalars) {
    const auto kind = static_cast<CollectiveKind>(operation.kind);
    const auto ranks = inputs.size();
    const auto bytes = operation.count * size_of(operation.type);
    const auto block = [&](std::size_t rank, std::size_t number) {
        return Buffer(inputs[rank].begin() + static_cast<std::ptrdiff_t>(number * bytes),
                      inputs[rank].begin() + static_cast<std::ptrdiff_t>((number + 1) * bytes));
    };
    const auto reduced_block = [&](std::size_t number) {
        std::vector<const std::byte *> operands;
        for (const auto &input : inputs)
            operands.push_back(input.data() + number * bytes);
        return reduced(operation.type, operation.reduction, operands, scalars, bytes);
    };
    const auto append = [](Buffer &to, const Buffer &more) { to.insert(to.end(), more.begin(), more.end()); };
    std::vector<Buffer> outputs(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const bool root = rank == operation.peer;
        auto &out = outputs[rank];
        switch (kind) {
        case CollectiveKind::broadcast:
            out = block(operation.peer, 0);
            break;
        case CollectiveKind::reduce:
            if (root)
                out = reduced_block(0);
            break;
        case CollectiveKind::all_reduce:
            out = rank == 0 ? reduced_block(0) : outputs[0];
            break;
        case CollectiveKind::reduce_scatter:
            out = reduced_block(rank);
            break;
        case CollectiveKind::all_gather:
        case CollectiveKind::gather:
            if (kind == CollectiveKind::all_gather || root)
                for (std::size_t from = 0; from < ranks; ++from)
                    append(out, block(from, 0));
            break;
        case CollectiveKind::all_to_all:
            for (std::size_t from = 0; from < ranks; ++from)
                append(out, block(from, rank));
            break;
        case CollectiveKind::scatter:
            out = block(operation.peer, rank);
            break;
        default:
            break;
        }
    }
    return outputs;
}

std::string name_of(const protocol::CollectiveOperation &operation) {
    static constexpr const char *kKinds[] = {"broadcast",      "reduce",     "all_reduce", "all_gather",
                                             "reduce_scatter", "all_to_all", "gather",     "scatter"};
    return fmt::format("{} of {} elements of type {}, reduction {}, root {}", kKinds[operation.kind],
                       operation.count, operation.type, operation.reduction, operation.peer);
}

} // namespace singularity::test
