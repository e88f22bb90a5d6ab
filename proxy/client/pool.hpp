// SPDX-License-Identifier: GPL-2.0-or-later
// A pool: a name with attributes. Its memory is stream_memory.hpp's.
#pragma once

#include "objects.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace singularity::client {

struct PoolObject : Object {
    std::mutex lock;
    std::atomic<std::uint64_t> release_threshold = 0;
    std::array<int, 3> reuse{1, 1, 1}; // the three reuse policies, on as in a new pool
    std::uint64_t used_high = 0;
    std::uint64_t reserved_high = 0;
};

} // namespace singularity::client
