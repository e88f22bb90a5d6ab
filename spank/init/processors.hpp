// SPDX-License-Identifier: GPL-2.0-or-later
// On which processors the processes of a task run.
#pragma once

#include <span>

#include <sys/types.h>

namespace singularity::init {

// Binds a task's first process, all that come of it, and all of their threads; cpus as sched_setaffinity(2)
// has them. Processes that have left both the family and the session are left alone, and those that end
// meanwhile are no error. Returns an errno; 0: done.
[[nodiscard]] int bind_task(pid_t first, std::span<const char> cpus);

} // namespace singularity::init
