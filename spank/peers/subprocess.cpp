// SPDX-License-Identifier: GPL-2.0-or-later
#include "subprocess.hpp"

#include "common/write_all.hpp"

#include <array>
#include <csignal>
#include <exception>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::peers {

namespace {

constexpr int kPipe = 3;

[[noreturn]] void do_work(const std::function<std::string()> &work, int pipe, pid_t parent) {
    try {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
            _exit(EXIT_FAILURE);
        for (const int number : {SIGTERM, SIGINT, SIGCHLD})
            static_cast<void>(std::signal(number, SIG_DFL));
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, nullptr);
        if (pipe != kPipe && dup2(pipe, kPipe) < 0)
            _exit(EXIT_FAILURE);
        // The parent's connections must not stay open through us.
        close_range(kPipe + 1, ~0U, 0);
        const std::string found = work();
        _exit(write_all(kPipe, found, "a pipe") ? EXIT_SUCCESS : EXIT_FAILURE);
    } catch (const std::exception &) { // the parent sees that nothing has come
        _exit(EXIT_FAILURE);
    }
}

} // namespace

Expected<Subprocess> Subprocess::start(std::string name, std::function<std::string()> work,
                                       const Deadline &deadline) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
        return std::unexpected(errno_error("make a pipe to", name));
    UniqueFd reading(ends[0]);
    const UniqueFd writing(ends[1]);
    static_cast<void>(fcntl(writing.get(), F_SETFL, 0)); // the other process may wait
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0)
        return std::unexpected(errno_error("start a process to", name));
    if (pid == 0)
        do_work(work, writing.get(), parent);
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd)
        return std::unexpected(errno_error("hold the process that is to", name));
    return Subprocess(std::move(name), std::move(reading), std::move(pidfd), deadline);
}

Subprocess &Subprocess::operator=(Subprocess &&other) noexcept {
    end();
    name_ = std::move(other.name_);
    pipe_ = std::move(other.pipe_);
    pidfd_ = std::move(other.pidfd_);
    deadline_ = other.deadline_;
    found_ = std::move(other.found_);
    return *this;
}

Subprocess::~Subprocess() { end(); }

void Subprocess::end() {
    if (pidfd_)
        syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0); // ESRCH: it has ended
    pidfd_.reset();
}

Expected<std::optional<std::string>> Subprocess::take() {
    for (;;) {
        std::array<char, 4096> part; // NOLINT(cppcoreguidelines-pro-type-member-init): read into
        const ssize_t got = read(pipe_.get(), part.data(), part.size());
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) {
            if (deadline_.expired()) {
                end();
                return std::unexpected(timeout_error(deadline_, "a process that is to " + name_));
            }
            return std::nullopt;
        }
        if (got < 0)
            return std::unexpected(errno_error("hear from the process that is to", name_));
        if (got == 0) {
            if (found_.empty())
                return failure(name_, "", "the process that was to do it has died", ECHILD);
            return std::optional(std::move(found_));
        }
        found_.append(part.data(), static_cast<std::size_t>(got));
        if (found_.size() > kLimit)
            return failure(name_, "", "the process that was to do it says too much", EMSGSIZE);
    }
}

} // namespace singularity::peers
