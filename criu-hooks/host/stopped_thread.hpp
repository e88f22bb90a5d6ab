// SPDX-License-Identifier: GPL-2.0-or-later
// The threads of another process, stopped for a moment by ptrace(2), as a debugger stops them. x86-64 only.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"

#include <utility>
#include <vector>

#include <sys/types.h>
#include <sys/user.h>

namespace singularity::host {

// Invariant: attached to the thread, which is stopped once await_stop() has succeeded. The destructor
// detaches, and the thread runs on, or stays stopped if its process was; it then gets the signal that has
// come meanwhile.
class StoppedThread {
  public:
    explicit StoppedThread(pid_t thread) : thread_(thread) {}
    StoppedThread(StoppedThread &&other) noexcept
        : thread_(std::exchange(other.thread_, -1)), signal_(other.signal_), later_(other.later_) {}
    StoppedThread &operator=(StoppedThread &&) = delete;
    StoppedThread(const StoppedThread &) = delete;
    StoppedThread &operator=(const StoppedThread &) = delete;
    ~StoppedThread();

    [[nodiscard]] pid_t id() const { return thread_; }
    // A signal that the thread is about to act on.
    [[nodiscard]] bool has_signal() const { return signal_ != 0; }

    [[nodiscard]] Expected<void> interrupt() const;
    [[nodiscard]] Expected<void> await_stop(const Deadline &deadline);
    [[nodiscard]] Expected<user_regs_struct> registers() const;
    [[nodiscard]] Expected<void> set_registers(user_regs_struct value) const;

    // One instruction, with no signal before it. (The kernel resets the action of a program that ignores
    // SIGTRAP.)
    [[nodiscard]] Expected<void> step(const Deadline &deadline);

  private:
    [[nodiscard]] Expected<int> wait_for_stop(const Deadline &deadline) const;
    [[nodiscard]] Expected<void> step_once(const Deadline &deadline);

    pid_t thread_;
    int signal_ = 0; // it gets this one when it runs on,
    int later_ = 0;  // and this one after that
};

// Attached to these threads, all of which are stopped then; without those that have ended.
[[nodiscard]] Expected<std::vector<StoppedThread>> stop_all(const std::vector<pid_t> &threads,
                                                            const Deadline &deadline);

} // namespace singularity::host
