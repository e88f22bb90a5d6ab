// SPDX-License-Identifier: GPL-2.0-or-later
// What the parts of BLAKE3 share: constants, and the kernels per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace singularity::store::blake3 {

inline constexpr std::size_t kBlockSize = 64;
inline constexpr std::size_t kChunkSize = 1024;

// BLAKE3 specification, table 3.
inline constexpr std::uint32_t kChunkStart = 1;
inline constexpr std::uint32_t kChunkEnd = 2;
inline constexpr std::uint32_t kParent = 4;
inline constexpr std::uint32_t kRoot = 8;

inline constexpr std::uint32_t kIv[8] = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                                         0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};

// The order in which each round takes the words of the message: the permutation of table 2, applied again
// and again.
inline constexpr std::uint8_t kOrder[7][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8},
    {3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1},
    {10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6},
    {12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4},
    {9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7},
    {11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13},
};

// Many inputs of the same length, a whole number of blocks.
struct Job {
    std::size_t stride;    // bytes between the starts of inputs
    std::size_t blocks;    // in each
    std::uint64_t counter; // of the first input
    bool counts;           // each input's counter is one more than the last one's
    std::uint32_t flags;
    std::uint32_t first_flags; // also of the first block
    std::uint32_t last_flags;  // also of the last block
};

// Hashes as many of `count` inputs as the kernel can take at once, 32 bytes of output each; returns how many.
using Kernel = std::size_t (*)(const Job &job, const std::byte *input, std::size_t count, std::byte *output);

std::size_t hash_generic(const Job &job, const std::byte *input, std::size_t count, std::byte *output);
#ifdef SINGULARITY_STORE_X86
std::size_t hash_avx2(const Job &job, const std::byte *input, std::size_t count, std::byte *output);
std::size_t hash_avx512(const Job &job, const std::byte *input, std::size_t count, std::byte *output);
#endif

} // namespace singularity::store::blake3
