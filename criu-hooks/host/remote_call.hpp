// SPDX-License-Identifier: GPL-2.0-or-later
// One system call in another process, by ptrace(2), as a debugger would make it.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "maps.hpp"

#include <vector>

#include <sys/types.h>

namespace singularity::host {

// Unmaps `what` in a process none of whose threads is there; false if one is. All threads stop for that time.
[[nodiscard]] Expected<bool> unmap_in(pid_t pid, const std::vector<Mapping> &mappings, const Mapping &what,
                                      const Deadline &deadline);

} // namespace singularity::host
