// SPDX-License-Identifier: GPL-2.0-or-later
// What one instruction set has for one data type.
#pragma once

#include <cstddef>
#include <cstdint>

namespace singularity::collectives {

struct Loops {
    // By reduction: sum, product, largest, smallest. into[i] = into[i] OP with[i], rounded to the type.
    void (*combine[4])(void *into, const void *with, std::size_t count);
    void (*scale)(void *values, const void *scalar, std::size_t count);
    void (*divide)(void *values, std::uint32_t divisor, std::size_t count);
    void (*invert)(void *scalar, std::uint32_t divisor);
    std::size_t size;
    bool floats;
};

// By data type, as many as NCCL has.
[[nodiscard]] const Loops *plain_loops();
[[nodiscard]] const Loops *vector_loops(); // where the build has them

} // namespace singularity::collectives
