// SPDX-License-Identifier: GPL-2.0-or-later
// Reductions on host memory, of every type that NCCL has. Each step rounds to the type, so that the order of
// the steps is all that a result depends on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace singularity::collectives {

// Types and reductions are NCCL's numbers; the callers have checked them (protocol::kDataTypes, kReductions).
[[nodiscard]] std::size_t element_size(std::uint32_t type);

using Scalar = std::array<std::byte, 8>; // a value of a type in its low bytes

// What a reduction does besides adding up: before the first step, and after the last.
enum class Adjustment : std::uint8_t {
    none,
    scale_operands, // each operand is multiplied by a scalar
    divide_result,  // by the number of operands
};
[[nodiscard]] Adjustment adjustment(std::uint32_t type, std::uint32_t reduction);
// Which step it takes from operand to operand: sum, product, largest, smallest.
[[nodiscard]] std::uint32_t step_of(std::uint32_t reduction);
// 1/count in the type.
[[nodiscard]] Scalar inverse(std::uint32_t type, std::uint32_t count);

void scale(std::uint32_t type, std::byte *values, const Scalar &scalar, std::size_t count);
// result = ((o[0] OP o[1]) OP o[2]) ..., then what the reduction does after the last step. All are aligned to
// their elements; none overlaps the result.
void reduce(std::uint32_t type, std::uint32_t reduction, std::span<const std::byte *const> operands,
            std::byte *result, std::size_t count);

} // namespace singularity::collectives
