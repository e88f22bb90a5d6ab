// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/collectives/reduce.hpp"

#include "loops.hpp"
#include "proxy/protocol/collective.hpp"

#include <algorithm>
#include <cstring>

namespace singularity::collectives {

namespace {

// Part of a result that stays in the nearest cache while operand after operand is added to it.
constexpr std::size_t kBlock = std::size_t{8} << 10;

constexpr std::uint32_t kSum = 0;
constexpr std::uint32_t kAverage = 4;

const Loops &loops(std::uint32_t type) {
#ifdef SINGULARITY_LOOPS_V3
    static const Loops *const kBest =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma")
            ? vector_loops()
            : plain_loops();
    return kBest[type];
#else
    return plain_loops()[type];
#endif
}

} // namespace

std::size_t element_size(std::uint32_t type) { return plain_loops()[type].size; }

Adjustment adjustment(std::uint32_t type, std::uint32_t reduction) {
    if (reduction == protocol::kPremultipliedSum)
        return Adjustment::scale_operands;
    if (reduction != kAverage)
        return Adjustment::none;
    return plain_loops()[type].floats ? Adjustment::scale_operands : Adjustment::divide_result;
}

std::uint32_t step_of(std::uint32_t reduction) { return reduction < kAverage ? reduction : kSum; }

Scalar inverse(std::uint32_t type, std::uint32_t count) {
    alignas(8) Scalar scalar{};
    loops(type).invert(scalar.data(), count);
    return scalar;
}

void scale(std::uint32_t type, std::byte *values, const Scalar &scalar, std::size_t count) {
    alignas(8) const Scalar aligned = scalar;
    loops(type).scale(values, aligned.data(), count);
}

void reduce(std::uint32_t type, std::uint32_t reduction, std::span<const std::byte *const> operands,
            std::byte *result, std::size_t count) {
    const auto &of_type = loops(type);
    const auto combine = of_type.combine[step_of(reduction)];
    const auto most = kBlock / of_type.size;
    for (std::size_t begin = 0; begin < count; begin += most) {
        const auto at = begin * of_type.size;
        const auto now = std::min(most, count - begin);
        std::memcpy(result + at, operands[0] + at, now * of_type.size);
        for (std::size_t rank = 1; rank < operands.size(); ++rank)
            combine(result + at, operands[rank] + at, now);
        if (adjustment(type, reduction) == Adjustment::divide_result)
            of_type.divide(result + at, static_cast<std::uint32_t>(operands.size()), now);
    }
}

} // namespace singularity::collectives
