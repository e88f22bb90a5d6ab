// SPDX-License-Identifier: GPL-2.0-or-later
// With what a store is opened.
#pragma once

#include <chrono>
#include <cstdint>

namespace singularity::store {

inline constexpr std::chrono::minutes kLeaseTimeout{15};

struct Options {
    bool create = false;       // a store where there is none yet
    unsigned threads = 0;      // that hash, compress and check; 0: as many as processors, at most 8
    int compression_level = 1; // of zstd; 0: nothing is compressed
    // Bytes that the checkpoints of one user may take together; 0: no limit. No checkpoint that would exceed
    // it is committed; of several that are committed in the same moment all may pass. Content that several
    // checkpoints of a user share counts once; content of other users never matters.
    std::uint64_t quota = 0;
    // A writer of which nothing has been heard for so long counts as dead. The same on all hosts.
    std::chrono::milliseconds lease_timeout = kLeaseTimeout;
};

} // namespace singularity::store
