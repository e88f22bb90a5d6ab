// SPDX-License-Identifier: GPL-2.0-or-later
// Signals that Slurm or a user sends to a task's wrapper, or to a script's, and that are meant for the
// program.
#pragma once

#include <vector>

#include <sys/signalfd.h>

namespace singularity::task {

// All that a process can take: every signal but SIGKILL and SIGSTOP.
[[nodiscard]] std::vector<int> forwarded_signals();

// False for what the kernel tells the wrapper itself: a child of its own has ended, its terminal has another
// size or is somebody else's, nobody reads what it writes.
[[nodiscard]] bool is_for_program(const signalfd_siginfo &signal);

// Whether a signal says that a program is to end, if the program has no handler for it yet. The others can
// wait for a program that is still being started or restored.
[[nodiscard]] bool ends_program(int number);

} // namespace singularity::task
