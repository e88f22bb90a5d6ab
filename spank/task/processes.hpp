// SPDX-License-Identifier: GPL-2.0-or-later
// All that a process has started, and what those have.
#pragma once

#include "common/error.hpp"

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace singularity::task {

struct Descendant {
    pid_t pid = 0;
    char state = '?';    // as proc(5) has it
    std::string program; // the name of its file; empty: it is not to be known
};
// Of the calling process, which must be a reaper of orphans (PR_SET_CHILD_SUBREAPER).
[[nodiscard]] Expected<std::vector<Descendant>> descendants();

// Stops those that are wanted until no other comes into being. Who was stopped before is not among the
// result.
[[nodiscard]] Expected<std::vector<pid_t>> stop_all(const std::function<bool(const Descendant &)> &wanted);
// Until none is left; some may remain as zombies.
[[nodiscard]] Expected<void> kill_all();

} // namespace singularity::task
