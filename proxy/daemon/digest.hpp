// SPDX-License-Identifier: GPL-2.0-or-later
// What tells memory of one content from that of another, in 16 bytes: as good as a random number of 128 bits,
// for contents that nobody has chosen to have the same one. Whoever does so fools only their own job.
#pragma once

#include <compare>
#include <cstdint>

namespace singularity::proxyd {

struct Digest {
    std::uint64_t sum = 0;
    std::uint64_t weighted = 0;
    friend constexpr auto operator<=>(const Digest &, const Digest &) = default;
};

// What the kernel of digest.cu is told.
struct DigestArguments {
    std::uint64_t memory = 0; // address, a multiple of 16
    std::uint64_t words = 0;  // of 16 bytes
    std::uint64_t parts = 0;  // address: a Digest of each block; their sums are the memory's
};
static_assert(sizeof(DigestArguments) == 24);
inline constexpr unsigned kDigestThreads = 256; // of a block

} // namespace singularity::proxyd
