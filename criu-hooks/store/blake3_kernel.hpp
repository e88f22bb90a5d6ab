// SPDX-License-Identifier: GPL-2.0-or-later
// The inner loop of BLAKE3 on as many inputs at once as a vector register has 32-bit lanes. Included by one
// source file per instruction set, which defines BLAKE3_LANES; everything here is in an anonymous namespace
// because the linker must never take one file's copy of a function for another's.
// Source: "BLAKE3: one function, fast everywhere" (O'Connor, Aumasson, Neves, Wilcox-O'Hearn),
// sections 2.1-2.4.
#pragma once

#include "blake3_kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace singularity::store::blake3 {
namespace {

constexpr std::size_t kLanes = BLAKE3_LANES;
constexpr std::size_t kGroups = 16 / kLanes; // vectors that hold one block of one input
using Vector [[gnu::vector_size(kLanes * sizeof(std::uint32_t))]] = std::uint32_t;

template <std::size_t... I>
[[gnu::always_inline]] inline Vector interleave_low(const Vector &a, const Vector &b,
                                                    std::index_sequence<I...> /*lanes*/) {
    return __builtin_shufflevector(a, b, (I % 2 == 0 ? I / 2 : kLanes + (I / 2))...);
}

template <std::size_t... I>
[[gnu::always_inline]] inline Vector interleave_high(const Vector &a, const Vector &b,
                                                     std::index_sequence<I...> /*lanes*/) {
    return __builtin_shufflevector(a, b, (kLanes / 2) + (I % 2 == 0 ? I / 2 : kLanes + (I / 2))...);
}

// Interleaving the halves log2(lanes) times is a transposition: each step moves one bit of the row's number
// into the column's.
[[gnu::always_inline]] inline void transpose(Vector *rows) {
    constexpr std::make_index_sequence<kLanes> kAll;
#pragma GCC unroll 4
    for (std::size_t step = 1; step < kLanes; step *= 2) {
        Vector out[kLanes];
#pragma GCC unroll 16
        for (std::size_t i = 0; i < kLanes / 2; ++i) {
            out[2 * i] = interleave_low(rows[i], rows[i + (kLanes / 2)], kAll);
            out[(2 * i) + 1] = interleave_high(rows[i], rows[i + (kLanes / 2)], kAll);
        }
#pragma GCC unroll 16
        for (std::size_t i = 0; i < kLanes; ++i)
            rows[i] = out[i];
    }
}

template <int Bits>
[[gnu::always_inline]] inline Vector rotated(const Vector &x) {
    return (x >> Bits) | (x << (32 - Bits));
}

[[gnu::always_inline]] inline void mix(Vector *v, std::size_t a, std::size_t b, std::size_t c, std::size_t d,
                                       const Vector &x, const Vector &y) {
    v[a] = v[a] + v[b] + x;
    v[d] = rotated<16>(v[d] ^ v[a]);
    v[c] = v[c] + v[d];
    v[b] = rotated<12>(v[b] ^ v[c]);
    v[a] = v[a] + v[b] + y;
    v[d] = rotated<8>(v[d] ^ v[a]);
    v[c] = v[c] + v[d];
    v[b] = rotated<7>(v[b] ^ v[c]);
}

[[gnu::always_inline]] inline void round(Vector *v, const Vector *m, const std::uint8_t *order) {
    mix(v, 0, 4, 8, 12, m[order[0]], m[order[1]]);
    mix(v, 1, 5, 9, 13, m[order[2]], m[order[3]]);
    mix(v, 2, 6, 10, 14, m[order[4]], m[order[5]]);
    mix(v, 3, 7, 11, 15, m[order[6]], m[order[7]]);
    mix(v, 0, 5, 10, 15, m[order[8]], m[order[9]]);
    mix(v, 1, 6, 11, 12, m[order[10]], m[order[11]]);
    mix(v, 2, 7, 8, 13, m[order[12]], m[order[13]]);
    mix(v, 3, 4, 9, 14, m[order[14]], m[order[15]]);
}

// kLanes inputs of `job.blocks` blocks each, `job.stride` bytes apart.
inline void hash_lanes(const Job &job, const std::byte *input, std::uint64_t counter, std::byte *output) {
    Vector value[8];
    for (std::size_t word = 0; word < 8; ++word)
        value[word] = Vector{} + kIv[word];
    Vector counter_low{};
    Vector counter_high{};
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const std::uint64_t number = counter + (job.counts ? lane : 0);
        counter_low[lane] = static_cast<std::uint32_t>(number);
        counter_high[lane] = static_cast<std::uint32_t>(number >> 32U);
    }
    for (std::size_t block = 0; block < job.blocks; ++block) {
        Vector m[16];
#pragma GCC unroll 4
        for (std::size_t group = 0; group < kGroups; ++group) {
#pragma GCC unroll 16
            for (std::size_t lane = 0; lane < kLanes; ++lane)
                std::memcpy(&m[(group * kLanes) + lane],
                            input + (lane * job.stride) + (block * kBlockSize) + (group * sizeof(Vector)),
                            sizeof(Vector));
            transpose(m + (group * kLanes));
        }
        std::uint32_t flags = job.flags;
        if (block == 0)
            flags |= job.first_flags;
        if (block + 1 == job.blocks)
            flags |= job.last_flags;
        Vector v[16] = {
            value[0],          value[1],          value[2],
            value[3],          value[4],          value[5],
            value[6],          value[7],          Vector{} + kIv[0],
            Vector{} + kIv[1], Vector{} + kIv[2], Vector{} + kIv[3],
            counter_low,       counter_high,      Vector{} + static_cast<std::uint32_t>(kBlockSize),
            Vector{} + flags};
#pragma GCC unroll 7
        // NOLINTNEXTLINE(modernize-loop-convert): counted, as the pragma needs it
        for (std::size_t i = 0; i < 7; ++i)
            round(v, m, kOrder[i]);
#pragma GCC unroll 8
        for (std::size_t word = 0; word < 8; ++word)
            value[word] = v[word] ^ v[word + 8];
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
        std::uint32_t words[8];
        for (std::size_t word = 0; word < 8; ++word)
            words[word] = value[word][lane];
        std::memcpy(output + (lane * sizeof words), words, sizeof words);
    }
}

// As many of the inputs as fill the lanes; returns how many.
inline std::size_t hash_groups(const Job &job, const std::byte *input, std::size_t count, std::byte *output) {
    std::size_t done = 0;
    for (; done + kLanes <= count; done += kLanes)
        hash_lanes(job, input + (done * job.stride), job.counter + (job.counts ? done : 0),
                   output + (done * 32));
    return done;
}

} // namespace
} // namespace singularity::store::blake3
