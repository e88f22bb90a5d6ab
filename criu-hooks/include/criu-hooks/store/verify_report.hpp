// SPDX-License-Identifier: GPL-2.0-or-later
// What a verification of checkpoints has found.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace singularity::store {

// A checkpoint of which something cannot be read.
struct Affected {
    std::string id;
    std::string job;
    std::string previous; // the newest earlier one of the job of which that is not so; may be empty
};

struct VerifyReport {
    std::uint64_t manifests = 0;
    std::uint64_t chunks = 0;
    std::uint64_t bytes = 0;        // of files read
    std::vector<Error> damage;      // each names a file and what is wrong with it
    std::vector<Affected> affected; // by that damage
    bool complete = true;           // false: cancelled
};

} // namespace singularity::store
