// SPDX-License-Identifier: GPL-2.0-or-later
// /proc/PID/maps
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace singularity::host {

struct Mapping {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool executable = false;
    bool shared = false; // what is written to it is written to the file
    std::string name;    // a path, "[vdso]", "anon_inode:[io_uring]", or empty
};

// Empty for a process that has no memory any more.
[[nodiscard]] Expected<std::vector<Mapping>> mappings_of(pid_t pid);

} // namespace singularity::host
