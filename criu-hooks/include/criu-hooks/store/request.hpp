// SPDX-License-Identifier: GPL-2.0-or-later
// What a checkpoint is written for, and how far its writing is.
#pragma once

#include "criu-hooks/store/manifest.hpp"

#include <cstdint>
#include <string>

#include <sys/types.h>

namespace singularity::store {

// For whom and what a checkpoint is.
struct Request {
    std::string job;
    uid_t uid = 0;
    gid_t gid = 0;
    std::string user;
    std::string tier;
    std::string parent; // id or empty
    Attributes attributes;
};

// Bytes so far. What was given is zeros, or reused, or added, or still being worked on.
struct Progress {
    std::uint64_t given = 0;
    std::uint64_t zeros = 0;
    std::uint64_t reused = 0; // content that was there already
    std::uint64_t added = 0;  // content that was not
    std::uint64_t stored = 0; // what the added content takes as files
};

} // namespace singularity::store
