// SPDX-License-Identifier: GPL-2.0-or-later
// What becomes of a node when criu does not end by itself. README.md of this folder says what criu changes in
// processes, and what the kernel and criu's own code undo when it dies.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "criu.hpp"
#include "proc.hpp"

#include <vector>

namespace singularity::host {

// Kills criu at a moment at which no process of the node has foreign code or registers that criu alone could
// put back: stops it, looks, and lets it go on if the moment is a bad one. When the deadline passes without a
// good moment it is killed all the same. The node is held (SIGSTOP) until its TCP sockets are as a program
// expects them. `before` is the node as it was.
[[nodiscard]] Expected<void> kill_at_a_good_moment(Criu &criu, const std::vector<Process> &before,
                                                   const Deadline &deadline);

// After criu has died in a dump: waits until its code in the processes has ended, removes it, and takes TCP
// sockets out of repair mode. Code kNodeLost: a process was not saved.
[[nodiscard]] Expected<void> heal(const std::vector<Process> &before, const Deadline &deadline);

// After a criu that has ended by itself, but failed: where a process of the node has died meanwhile it leaves
// its code in others. Code kNodeLost: it cannot be removed. Processes that have ended need nothing.
[[nodiscard]] Expected<void> tidy_up(const std::vector<Process> &node, const Deadline &deadline);

// TCP sockets of all processes are as a program has them: criu leaves those of a stopped node in repair mode.
// How many were not.
[[nodiscard]] Expected<std::size_t> end_tcp_repair(const std::vector<Process> &node);

} // namespace singularity::host
