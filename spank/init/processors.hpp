// SPDX-License-Identifier: GPL-2.0-or-later
// On which processors the processes of a task run.
#pragma once

#include "common/cpu_mask.hpp"

#include <span>

#include <sys/types.h>

namespace singularity::init {

// The processors of the calling process; empty if the kernel does not say.
[[nodiscard]] CpuMask own_processors();

// What a task was bound to, and what its node's init could use at that time.
struct Binding {
    CpuMask task; // empty: nothing
    CpuMask all;
};

// Binds a task's first process, all that come of it, and all of their threads; cpus as sched_setaffinity(2)
// has them. Threads that their program has bound, to some of what the task had, are bound to those that have
// the same places in cpus. Processes that have left both the family and the session are left alone, and those
// that end meanwhile are no error. Returns an errno; 0: done.
[[nodiscard]] int bind_task(pid_t first, const Binding &before, std::span<const char> cpus);

} // namespace singularity::init
