// SPDX-License-Identifier: GPL-2.0-or-later
// System calls that a checkpoint interrupts. Some fail with EINTR when a process is stopped, and CRIU cannot
// save what the kernel remembers of others (a poll, a sleep, a wait for a futex with a timeout) and makes
// these fail with EINTR, in a node that is resumed as well. Programs without signal handlers do not expect
// that. So the threads make the call again.
//
// A sleep goes on for the rest of its time if the program has asked for the rest; everything else waits for
// its whole timeout again. x86-64 only. A call that was interrupted before by SIGSTOP and SIGCONT (then it is
// restart_syscall(2)) is not known any more and fails with EINTR.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proc.hpp"
#include "wire.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace singularity::host {

// Of a thread, named as in struct user_regs_struct.
struct CallRegisters {
    std::uint64_t rax = 0;
    std::uint64_t orig_rax = 0; // the number of the system call; all ones: it was in none
    std::uint64_t rip = 0;
    std::uint64_t rdi = 0;
    std::uint64_t rsi = 0;
    std::uint64_t rdx = 0;
    std::uint64_t r10 = 0;
    std::uint64_t cs = 0; // of 64-bit code, or of 32-bit code, whose calls have other numbers
    auto operator<=>(const CallRegisters &) const = default;
};

// The registers with which the thread makes its interrupted call again; nothing if it has none.
[[nodiscard]] std::optional<CallRegisters> to_call_again(CallRegisters registers);

// A message of CRIU's core image (images/core.proto) likewise, unless a signal waits for the thread: then the
// call ends with EINTR, as it would have. `process_signals`: signals that wait for the whole process.
[[nodiscard]] Expected<std::optional<std::string>> core_to_call_again(Bytes core,
                                                                      std::uint64_t process_signals);

// In all core images of the directory, before CRIU reads them.
[[nodiscard]] Expected<void> call_again_in_images(int images);

// In the processes of a node that stands still after a dump.
[[nodiscard]] Expected<void> call_again_in(const std::vector<Process> &node, const Deadline &deadline);

} // namespace singularity::host
