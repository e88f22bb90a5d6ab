// SPDX-License-Identifier: GPL-2.0-or-later
#include "remote_call.hpp"

#include "file.hpp"
#include "proc.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

namespace singularity::host {

#if defined(__x86_64__)
namespace {

// Invariant: attached to the thread, which is stopped once stop() has succeeded. Detaches, and the thread
// runs on.
class StoppedThread {
  public:
    explicit StoppedThread(pid_t thread) : thread_(thread) {}
    StoppedThread(StoppedThread &&other) noexcept : thread_(std::exchange(other.thread_, -1)) {}
    StoppedThread &operator=(StoppedThread &&) = delete;
    StoppedThread(const StoppedThread &) = delete;
    StoppedThread &operator=(const StoppedThread &) = delete;
    ~StoppedThread() {
        if (thread_ > 0)
            ptrace(PTRACE_DETACH, thread_, nullptr, nullptr); // fails if the thread has been killed
    }

    [[nodiscard]] Expected<void> stop(const Deadline &deadline) const {
        if (ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr) != 0)
            return std::unexpected(errno_error("stop", fmt::format("thread {}", thread_)));
        return wait_for_stop(deadline);
    }

    [[nodiscard]] Expected<void> wait_for_stop(const Deadline &deadline) const {
        int status = 0;
        const auto stopped = [&] { return waitpid(thread_, &status, __WALL | WNOHANG) != 0; };
        if (auto waited = wait_until(stopped, deadline, "a thread to stop", std::chrono::milliseconds(1));
            !waited)
            return waited;
        if (!WIFSTOPPED(status))
            return failure("stop", fmt::format("thread {}", thread_), "it has ended", ESRCH);
        return {};
    }

    [[nodiscard]] Expected<user_regs_struct> registers() const {
        user_regs_struct value{};
        iovec area{.iov_base = &value, .iov_len = sizeof(value)};
        if (ptrace(PTRACE_GETREGSET, thread_, 1 /* NT_PRSTATUS */, &area) != 0)
            return std::unexpected(errno_error("read the registers of", fmt::format("thread {}", thread_)));
        return value;
    }

    [[nodiscard]] Expected<void> set_registers(user_regs_struct value) const {
        iovec area{.iov_base = &value, .iov_len = sizeof(value)};
        if (ptrace(PTRACE_SETREGSET, thread_, 1, &area) != 0)
            return std::unexpected(errno_error("set the registers of", fmt::format("thread {}", thread_)));
        return {};
    }

    [[nodiscard]] Expected<void> step(const Deadline &deadline) const {
        if (ptrace(PTRACE_SINGLESTEP, thread_, nullptr, nullptr) != 0)
            return std::unexpected(errno_error("step", fmt::format("thread {}", thread_)));
        return wait_for_stop(deadline);
    }

  private:
    pid_t thread_;
};

Expected<std::vector<StoppedThread>> stop_all(pid_t pid, const Deadline &deadline) {
    std::vector<StoppedThread> stopped;
    auto threads = threads_of(pid);
    if (!threads)
        return propagate(threads);
    for (const pid_t thread : *threads) {
        if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
            if (errno == ESRCH)
                continue;
            return std::unexpected(errno_error("attach to", fmt::format("thread {}", thread)));
        }
        if (auto halted = stopped.emplace_back(thread).stop(deadline); !halted)
            return propagate(halted);
    }
    if (stopped.empty())
        return failure("attach to", fmt::format("process {}", pid), "it has ended", ESRCH);
    return stopped;
}

// The vdso has a `syscall` instruction in every process.
std::optional<std::uint64_t> call_instruction(pid_t pid, const std::vector<Mapping> &mappings) {
    constexpr std::string_view kSyscall = "\x0f\x05";
    const auto vdso = std::ranges::find(mappings, "[vdso]", &Mapping::name);
    if (vdso == mappings.end())
        return std::nullopt;
    std::string code(vdso->end - vdso->begin, '\0');
    const iovec local{.iov_base = code.data(), .iov_len = code.size()};
    const iovec remote{.iov_base = reinterpret_cast<void *>(vdso->begin), // NOLINT(performance-no-int-to-ptr)
                       .iov_len = code.size()};
    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(code.size()))
        return std::nullopt;
    const std::size_t at = code.find(kSyscall);
    return at == std::string::npos ? std::nullopt : std::optional(vdso->begin + at);
}

} // namespace

Expected<bool> unmap_in(pid_t pid, const std::vector<Mapping> &mappings, const Mapping &what,
                        const Deadline &deadline) {
    const auto instruction = call_instruction(pid, mappings);
    if (!instruction)
        return failure("find", fmt::format("a system call instruction in process {}", pid),
                       "its vdso cannot be read");
    auto threads = stop_all(pid, deadline);
    if (!threads)
        return propagate(threads);
    std::optional<user_regs_struct> before;
    for (const StoppedThread &each : *threads) {
        auto registers = each.registers();
        if (!registers)
            return propagate(registers);
        if (registers->rip >= what.begin && registers->rip < what.end)
            return false;
        if (!before)
            before = *registers;
    }
    if (!before) // stop_all() would have said so
        return failure("attach to", fmt::format("process {}", pid), "it has ended", ESRCH);
    user_regs_struct call = *before;
    call.rip = *instruction;
    call.orig_rax = ~0ULL; // a system call that was interrupted must not be restarted here
    call.rax = SYS_munmap;
    call.rdi = what.begin;
    call.rsi = what.end - what.begin;
    const StoppedThread &caller = threads->front();
    if (auto set = caller.set_registers(call); !set)
        return propagate(set);
    auto stepped = caller.step(deadline);
    if (auto restored = caller.set_registers(*before); !restored)
        return propagate(restored);
    if (!stepped)
        return propagate(stepped);
    return true;
}
#else
Expected<bool> unmap_in(pid_t, const std::vector<Mapping> &, const Mapping &, const Deadline &) {
    return true; // a few pages stay, which nothing uses
}
#endif

} // namespace singularity::host
