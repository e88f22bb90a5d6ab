// SPDX-License-Identifier: GPL-2.0-or-later
#include "spawn.hpp"

#include "common/exec.hpp"
#include "image_environment.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::init {

using node::Stdio;
using node::Step;

namespace {

constexpr int kCannotStart = 127;

Failure make_terminal(const node::WindowSize &window, Streams &streams) {
    Fd master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!master || unlockpt(master.get()) != 0)
        return {Step::terminal, errno};
    const winsize size{.ws_row = window.rows, .ws_col = window.columns, .ws_xpixel = 0, .ws_ypixel = 0};
    if (ioctl(master.get(), TIOCSWINSZ, &size) != 0)
        return {Step::terminal, errno};
    for (Fd &inner : streams.inner) {
        inner = Fd(ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
        if (!inner)
            return {Step::terminal, errno};
    }
    streams.outer = std::move(master);
    return {};
}

Failure make_kept(Streams &streams) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return {Step::streams, errno};
    streams.outer = Fd(ends[0]);
    streams.inner[1] = Fd(ends[1]);
    streams.inner[2] = Fd(fcntl(ends[1], F_DUPFD_CLOEXEC, 3));
    streams.inner[0] = Fd(open("/dev/null", O_RDWR | O_CLOEXEC));
    return streams.inner[0] && streams.inner[2] ? Failure{} : Failure{Step::streams, errno};
}

// Everything that the new process does before it becomes the program.
Failure become(node::Program &program, const Streams &streams, bool in_image) {
    const bool has_terminal = program.stdio == Stdio::terminal;
    // Without a terminal it stays in init's session, as a task of Slurm's does in its starter's: a process
    // group that is alone in its session cannot be stopped by SIGTSTP.
    if (has_terminal ? setsid() < 0 : setpgid(0, 0) != 0)
        return {Step::session, errno};
    if (has_terminal && ioctl(streams.inner[0].get(), TIOCSCTTY, 0) != 0)
        return {Step::terminal, errno};
    // Copies above 2 first: one of the three may be the number on which another has to go.
    std::array<int, 3> high{};
    for (int stream = 0; stream < 3; ++stream)
        high.at(static_cast<std::size_t>(stream)) =
            fcntl(streams.inner.at(static_cast<std::size_t>(stream)).get(), F_DUPFD_CLOEXEC, 3);
    for (int stream = 0; stream < 3; ++stream)
        if (high.at(static_cast<std::size_t>(stream)) < 0 ||
            dup2(high.at(static_cast<std::size_t>(stream)), stream) < 0)
            return {Step::streams, errno};
    if (chdir(program.directory.c_str()) != 0)
        return {Step::directory, errno};
    umask(program.mask);
    for (const node::Limit &limit : program.limits) {
        // Init's are the highest that can be had: the agent's, as Slurm's jobs have slurmd's.
        const auto resource = static_cast<__rlimit_resource>(limit.resource);
        rlimit value{};
        if (getrlimit(resource, &value) != 0)
            return {Step::limits, errno};
        value.rlim_max = std::min<rlim_t>(value.rlim_max, limit.hard);
        value.rlim_cur = std::min<rlim_t>(value.rlim_max, limit.soft);
        if (setrlimit(resource, &value) != 0)
            return {Step::limits, errno};
    }
    // The system call: glibc's type has room for 1024 processors. None of them is here: the node's cgroup has
    // others, and it runs on those.
    if (!program.cpus.empty() &&
        syscall(SYS_sched_setaffinity, 0, program.cpus.size(), program.cpus.data()) != 0 && errno != EINVAL)
        return {Step::processors, errno};
    // Ignored signals would stay ignored; SIGKILL and SIGSTOP refuse, which is right.
    for (int number = 1; number < NSIG; ++number)
        static_cast<void>(std::signal(number, SIG_DFL)); // NOLINT(bugprone-signal-handler)
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (in_image) {
        add_environment_of_image(program.environment, environment_of_image());
        add_scripts_of_image(program.environment);
    }
    auto arguments = exec_list(program.arguments);
    auto environment = exec_list(program.environment);
    environ = environment.data(); // execvp looks at PATH there
    // Not execvp for a path: it has a shell run what is no program.
    if (std::strchr(arguments[0], '/') != nullptr)
        execve(arguments[0], arguments.data(), environ);
    else
        execvp(arguments[0], arguments.data());
    return {Step::execute, errno};
}

} // namespace

Failure make_streams(const node::Program &program, Streams &streams) {
    switch (program.stdio) {
    case Stdio::given:
        return {};
    case Stdio::terminal:
        return make_terminal(program.window, streams);
    case Stdio::kept:
        return make_kept(streams);
    }
    return {Step::streams, EINVAL};
}

Failure spawn(const node::Program &program, const Streams &streams, bool in_image, Spawned &spawned) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
        return {Step::fork, errno};
    spawned.progress = Fd(ends[0]);
    const Fd writing(ends[1]);
    node::Program copy(program); // exec wants to be able to write to it
    spawned.pid = fork();
    if (spawned.pid < 0)
        return {Step::fork, errno};
    if (spawned.pid == 0) {
        const Failure failure = become(copy, streams, in_image);
        static_cast<void>(write(writing.get(), &failure, sizeof(failure)) == sizeof(failure));
        _exit(kCannotStart);
    }
    return {};
}

} // namespace singularity::init
