// SPDX-License-Identifier: GPL-2.0-or-later
#include "child.hpp"

#include "common/exec.hpp"
#include "log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::launcher {

namespace {

constexpr int kSignalBase = 128; // as shells report a death by signal
constexpr int kCannotStart = 127;

// This process's environment with what the command sets.
std::vector<std::string> environment_of(const Command &command) {
    std::vector<std::string> out;
    for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const auto name = text.substr(0, text.find('='));
        if (std::ranges::find(command.environment, name, &std::pair<std::string, std::string>::first) ==
            command.environment.end())
            out.emplace_back(text);
    }
    for (const auto &[name, value] : command.environment)
        out.push_back(fmt::format("{}={}", name, value));
    return out;
}

// Between fork and exec: nothing but system calls. Never returns.
[[noreturn]] void become(const Command &command, char *const *arguments, char *const *environment, int failed,
                         pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before the line above.
    if (getppid() == parent &&
        std::ranges::all_of(command.keep_open, [](int fd) { return fcntl(fd, F_SETFD, 0) == 0; }))
        execvpe(arguments[0], arguments, environment);
    const int code = errno;
    static_cast<void>(write(failed, &code, sizeof(code)) == sizeof(code));
    _exit(kCannotStart);
}

} // namespace

Expected<Child> Child::start(const Command &command) {
    auto arguments = command.arguments;
    auto environment = environment_of(command);
    const auto argument_list = exec_list(arguments);
    const auto environment_list = exec_list(environment);
    // Closed by a successful exec; otherwise it carries errno.
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return std::unexpected(errno_error("make a pipe for", command.arguments[0]));
    const UniqueFd reading(ends[0]);
    UniqueFd writing(ends[1]);
    const auto parent = getpid();
    const auto pid = fork();
    if (pid < 0)
        return std::unexpected(errno_error("start", command.arguments[0]));
    if (pid == 0)
        become(command, argument_list.data(), environment_list.data(), writing.get(), parent);
    writing.reset();
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd) {
        auto error = errno_error("watch", command.arguments[0]);
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
        return std::unexpected(std::move(error));
    }
    Child child(std::move(pidfd));
    int code = 0;
    ssize_t got = 0;
    do
        got = read(reading.get(), &code, sizeof(code));
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return child;
    if (auto ended = child.reap(); !ended)
        return std::unexpected(std::move(ended.error()));
    return std::unexpected(errno_error("start", command.arguments[0], got > 0 ? code : EIO));
}

Child::~Child() {
    if (!pidfd_ || status_)
        return;
    signal(SIGKILL);
    if (auto ended = reap(); !ended)
        kLog.error("{}", ended.error().message());
}

void Child::signal(int number) const {
    // ESRCH: it has ended already, which is all that a signal could want to know here.
    syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
}

Expected<int> Child::reap() {
    siginfo_t info{};
    while (!status_) {
        if (waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED) == 0)
            status_ = info.si_code == CLD_EXITED ? info.si_status : kSignalBase + info.si_status;
        else if (errno != EINTR)
            return std::unexpected(errno_error("wait for", "a child process"));
    }
    return *status_;
}

Expected<int> Child::wait(const Deadline &deadline) {
    pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    while (!status_) {
        const int found = poll(&ended, 1, deadline.poll_timeout());
        if (found > 0)
            break;
        if (found < 0 && errno != EINTR)
            return std::unexpected(errno_error("wait for", "a child process"));
        if (found == 0 && deadline.expired())
            return std::unexpected(timeout_error(deadline, "the end of a child process"));
    }
    return reap();
}

} // namespace singularity::launcher
