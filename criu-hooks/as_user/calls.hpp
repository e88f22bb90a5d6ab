// SPDX-License-Identifier: GPL-2.0-or-later
// Where criu has the processes of a node make system calls, in a dump: it writes the call over the first code
// that a process has. ptrace(2) refuses that where the code is in a shared mapping that is not writable, as
// compilers at run time have it (PHP's, of .NET, all with two mappings of one memory), and criu gives up. So
// the call is written over the first private code, and made there. x86-64 only.
#pragma once

#include <sys/types.h>

namespace singularity::as_user {

// ptrace(2), as the C library has it.
[[nodiscard]] long trace(int request, pid_t pid, void *address, void *data);

} // namespace singularity::as_user
