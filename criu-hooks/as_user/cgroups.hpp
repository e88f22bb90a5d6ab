// SPDX-License-Identifier: GPL-2.0-or-later
// The cgroups of the processes that criu makes.
#pragma once

#include <sys/types.h>

namespace singularity::as_user {

// Once, at the start of criu: the file of Placed, which is closed. False: it cannot be read.
[[nodiscard]] bool read_table(int file);

// criu has just asked its /proc, which each new process has by that descriptor, who the process is.
void remember_proc(int proc);

// Of the calling process, by its id in its own PID namespace: at the first call in a process it enters its
// cgroups. Before criu has given it anything, its memory above all, which stays accounted where it was taken.
void enter_cgroups(pid_t pid);

} // namespace singularity::as_user
