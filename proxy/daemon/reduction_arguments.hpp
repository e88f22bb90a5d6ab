// SPDX-License-Identifier: GPL-2.0-or-later
// What the kernels of reductions.cu are told: as the device's compiler and ours lay it out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace singularity::proxyd {

// One thread handles a word, or one element where that is larger: what is reduced or scaled begins at a whole
// word, and up to the end of its last one memory may be read and written.
inline constexpr std::size_t kReductionWord = 4;

struct ReduceArguments {
    std::uint64_t operands = 0; // address of the first one's elements
    std::uint64_t stride = 0;   // bytes from one's to the next one's
    std::uint64_t result = 0;   // address
    std::uint64_t count = 0;    // elements
    std::uint32_t members = 0;
    std::uint32_t reduction = 0; // sum, product, largest, smallest
    std::uint32_t divisor = 0;   // of the result; 0: none
    std::uint32_t reserved = 0;
};
static_assert(sizeof(ReduceArguments) == 48);

struct ScaleArguments {
    std::uint64_t values = 0; // address
    std::uint64_t count = 0;  // elements
    std::uint64_t scalar = 0; // a value in its low bytes
};
static_assert(sizeof(ScaleArguments) == 24);

} // namespace singularity::proxyd
