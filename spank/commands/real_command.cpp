// SPDX-License-Identifier: GPL-2.0-or-later
#include "real_command.hpp"

#include "common/exec.hpp"
#include "notice.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::commands {

namespace {

// Of the new process: after its three streams, and kNotice.
constexpr int kProgress = 4;
// As a shell has them.
constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;
constexpr int kCoreDumped = 0x80; // in a status of waitpid(2)

enum class Stage : std::uint8_t { session, streams, directory, limits, execute };

// In the order of Stage: what the new process could not do.
constexpr std::array kStages{"start a session for", "give its streams to", "enter the working directory of",
                             "set the resource limits of", "execute"};

struct Obstacle {
    Stage stage = Stage::session;
    std::int32_t code = 0; // errno
};

// Made before fork, so that the new process allocates nothing.
struct Prepared {
    const std::string &path;
    const node::Program &program;
    std::vector<char *> arguments;
    std::vector<char *> environment;
    std::array<bool, NSIG> ignored;
    std::array<int, kRunDescriptors> descriptors;
    int notice; // -1: none
};

// 0, or errno. The descriptor is of a mount of the node's: from there nobody outside finds its own name
// (getcwd(2) says "(unreachable)"). So the same directory is entered by its name where it has it here, too.
int enter(const std::string &name, int directory) {
    struct stat there{};
    struct stat here{};
    if (!name.empty() && fstat(directory, &there) == 0 && chdir(name.c_str()) == 0 && stat(".", &here) == 0 &&
        here.st_dev == there.st_dev && here.st_ino == there.st_ino)
        return 0;
    return fchdir(directory) == 0 ? 0 : errno;
}

// 0, or errno. No more than this process may have.
int apply(const node::Limit &limit) {
    const auto resource = static_cast<__rlimit_resource>(limit.resource);
    rlimit value{};
    if (getrlimit(resource, &value) != 0)
        return errno;
    value.rlim_max = std::min<rlim_t>(value.rlim_max, limit.hard);
    value.rlim_cur = std::min<rlim_t>(value.rlim_max, limit.soft);
    return setrlimit(resource, &value) == 0 ? 0 : errno;
}

// 0, or errno. Copies above all of them first: one of them may be the number on which another has to go.
int place(const std::array<int, kProgress + 1> &wanted) {
    std::array<int, kProgress + 1> high{};
    for (std::size_t i = 0; i < high.size(); ++i)
        if (high.at(i) = fcntl(wanted.at(i), F_DUPFD_CLOEXEC, kProgress + 1);
            high.at(i) < 0 && wanted.at(i) >= 0)
            return errno;
    close(kNotice); // unless it is asked for
    for (std::size_t i = 0; i < high.size(); ++i)
        if (high.at(i) >= 0 &&
            dup3(high.at(i), static_cast<int>(i), std::cmp_equal(i, kProgress) ? O_CLOEXEC : 0) < 0)
            return errno;
    return close_range(kProgress + 1, ~0U, 0) == 0 ? 0 : errno;
}

// Everything that the new process does before it becomes the command. Returns only where that fails.
Obstacle become_command(const Prepared &prepared, int &progress) {
    if (setsid() < 0)
        return {Stage::session, errno};
    if (const int code = enter(prepared.program.directory, prepared.descriptors[3]); code != 0)
        return {Stage::directory, code};
    const auto &given = prepared.descriptors;
    if (const int code = place({given[0], given[1], given[2], prepared.notice, progress}); code != 0)
        return {Stage::streams, code};
    progress = kProgress;
    umask(prepared.program.mask & ACCESSPERMS);
    for (const node::Limit &limit : prepared.program.limits)
        if (const int code = apply(limit); code != 0)
            return {Stage::limits, code};
    // SIGKILL and SIGSTOP refuse, and those of the C library, which is right.
    for (int number = 1; number < NSIG; ++number)
        static_cast<void>(std::signal( // NOLINT(bugprone-signal-handler)
            number, prepared.ignored.at(static_cast<std::size_t>(number)) ? SIG_IGN : SIG_DFL));
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(prepared.path.c_str(), prepared.arguments.data(), prepared.environment.data());
    return {Stage::execute, errno};
}

Refused refusal_of(const Obstacle &obstacle, const std::string &path) {
    const auto error = errno_error(kStages.at(static_cast<std::size_t>(obstacle.stage)), path, obstacle.code);
    Refused out{.doing = error.doing, .on = error.on, .why = error.why, .code = error.code};
    if (obstacle.stage == Stage::execute)
        out.exit_status = obstacle.code == ENOENT ? kNotFound : kNotExecutable;
    return out;
}

} // namespace

Expected<RealCommand> RealCommand::start(Run &run, const node::Descriptors &descriptors, bool notice) {
    Prepared prepared{.path = run.path,
                      .program = run.program,
                      .arguments = exec_list(run.program.arguments),
                      .environment = exec_list(run.program.environment),
                      .ignored = {},
                      .descriptors = {},
                      .notice = -1};
    std::ranges::copy(descriptors.all(), prepared.descriptors.begin());
    for (const std::int32_t number : run.ignored)
        if (number > 0 && number < NSIG)
            prepared.ignored.at(static_cast<std::size_t>(number)) = true;
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
        return std::unexpected(errno_error("make a pipe for", run.path));
    UniqueFd progress(ends[0]);
    const UniqueFd writing(ends[1]);
    UniqueFd noticing;
    UniqueFd noticed;
    if (notice && pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
        return std::unexpected(errno_error("make a pipe for", run.path));
    if (notice) {
        noticed = UniqueFd(ends[0]);
        noticing = UniqueFd(ends[1]);
        prepared.notice = noticing.get();
    }
    // A signal that comes before exec waits for it: no handler of this process runs in the new one.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t child = fork();
    if (child == 0) {
        int told = writing.get();
        const Obstacle obstacle = become_command(prepared, told);
        static_cast<void>(write(told, &obstacle, sizeof(obstacle)) == sizeof(obstacle));
        _exit(kNotFound);
    }
    const int code = errno;
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (child < 0)
        return std::unexpected(errno_error("start a process for", run.path, code));
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
    if (!pidfd) {
        const auto error = errno_error("hold the process of", run.path);
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        return std::unexpected(error);
    }
    return RealCommand(run.path, child, std::move(pidfd), std::move(progress), std::move(noticed));
}

int RealCommand::signal(int number) const {
    return syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0) == 0 ? 0 : errno;
}

bool RealCommand::has_begun_step() const {
    int bytes = 0;
    return notice_ && ioctl(notice_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
}

std::optional<RealCommand::End> RealCommand::reap() {
    siginfo_t info{};
    if (waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) != 0) {
        if (errno == EINTR)
            return std::nullopt;
        const auto error = errno_error("learn the end of", path_);
        return Refused{.doing = error.doing, .on = error.on, .why = error.why, .code = error.code};
    }
    if (info.si_pid == 0)
        return std::nullopt;
    Obstacle obstacle;
    if (read(progress_.get(), &obstacle, sizeof(obstacle)) == sizeof(obstacle))
        return refusal_of(obstacle, path_);
    if (info.si_code == CLD_EXITED)
        return Ended{.status = W_EXITCODE(info.si_status, 0)};
    return Ended{.status = info.si_status | (info.si_code == CLD_DUMPED ? kCoreDumped : 0)};
}

} // namespace singularity::commands
