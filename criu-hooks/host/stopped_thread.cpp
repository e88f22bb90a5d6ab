// SPDX-License-Identifier: GPL-2.0-or-later
#include "stopped_thread.hpp"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::host {
#if defined(__x86_64__)
namespace {

constexpr int kGeneralRegisters = 1; // NT_PRSTATUS

std::string name_of(pid_t thread) { return fmt::format("thread {}", thread); }

// The signal mask of a thread, as the kernel has it.
Expected<std::uint64_t> exchange_mask(pid_t thread, std::uint64_t mask) {
    std::uint64_t before = 0;
    if (ptrace(PTRACE_GETSIGMASK, thread, sizeof(before), &before) != 0 ||
        ptrace(PTRACE_SETSIGMASK, thread, sizeof(mask), &mask) != 0)
        return std::unexpected(errno_error("set the signal mask of", name_of(thread)));
    return before;
}

} // namespace

StoppedThread::~StoppedThread() {
    if (thread_ <= 0)
        return;
    ptrace(PTRACE_DETACH, thread_, nullptr, signal_); // fails if the thread has been killed
    if (later_ != 0)
        syscall(SYS_tkill, thread_, later_);
}

Expected<void> StoppedThread::interrupt() const {
    if (ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr) != 0)
        return std::unexpected(errno_error("stop", name_of(thread_)));
    return {};
}

Expected<void> StoppedThread::await_stop(const Deadline &deadline) {
    auto signal = wait_for_stop(deadline);
    if (!signal)
        return propagate(signal);
    signal_ = *signal;
    return {};
}

// The signal that the thread is about to act on; 0 if it stopped for another reason.
Expected<int> StoppedThread::wait_for_stop(const Deadline &deadline) const {
    constexpr int kEvent = 16; // the number of a ptrace event is above the signal
    int status = 0;
    const auto stopped = [&] { return waitpid(thread_, &status, __WALL | WNOHANG) != 0; };
    if (auto waited = wait_until(stopped, deadline, "a thread to stop", std::chrono::milliseconds(1));
        !waited)
        return propagate(waited);
    if (!WIFSTOPPED(status))
        return failure("stop", name_of(thread_), "it has ended", ESRCH);
    return status >> kEvent == 0 ? WSTOPSIG(status) : 0;
}

Expected<user_regs_struct> StoppedThread::registers() const {
    user_regs_struct value{};
    iovec area{.iov_base = &value, .iov_len = sizeof(value)};
    if (ptrace(PTRACE_GETREGSET, thread_, kGeneralRegisters, &area) != 0)
        return std::unexpected(errno_error("read the registers of", name_of(thread_)));
    return value;
}

Expected<void> StoppedThread::set_registers(user_regs_struct value) const {
    iovec area{.iov_base = &value, .iov_len = sizeof(value)};
    if (ptrace(PTRACE_SETREGSET, thread_, kGeneralRegisters, &area) != 0)
        return std::unexpected(errno_error("set the registers of", name_of(thread_)));
    return {};
}

Expected<void> StoppedThread::step(const Deadline &deadline) {
    // SIGTRAP, by which the kernel reports the step, must not be blocked.
    auto mask = exchange_mask(thread_, ~(std::uint64_t{1} << static_cast<unsigned>(SIGTRAP - 1)));
    if (!mask)
        return propagate(mask);
    auto stepped = step_once(deadline);
    if (auto restored = exchange_mask(thread_, *mask); !restored && stepped)
        return propagate(restored);
    return stepped;
}

Expected<void> StoppedThread::step_once(const Deadline &deadline) {
    for (;;) {
        if (ptrace(PTRACE_SINGLESTEP, thread_, nullptr, nullptr) != 0)
            return std::unexpected(errno_error("step", name_of(thread_)));
        auto signal = wait_for_stop(deadline);
        if (!signal)
            return propagate(signal);
        if (*signal == SIGTRAP)
            return {};
        // A stop of the whole process, or SIGSTOP, which cannot be blocked: the step is still to be made.
        if (*signal != 0)
            (signal_ == 0 ? signal_ : later_) = *signal;
    }
}

Expected<std::vector<StoppedThread>> stop_all(const std::vector<pid_t> &threads, const Deadline &deadline) {
    std::vector<StoppedThread> stopped;
    for (const pid_t thread : threads) {
        if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0)
            stopped.emplace_back(thread);
        else if (errno != ESRCH)
            return std::unexpected(errno_error("attach to", name_of(thread)));
    }
    for (const StoppedThread &thread : stopped)
        if (auto interrupted = thread.interrupt(); !interrupted)
            return propagate(interrupted);
    for (StoppedThread &thread : stopped)
        if (auto halted = thread.await_stop(deadline); !halted)
            return propagate(halted);
    return stopped;
}
#endif

} // namespace singularity::host
