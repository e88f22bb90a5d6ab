// SPDX-License-Identifier: GPL-2.0-or-later
#include "program.hpp"

#include <array>
#include <csignal>
#include <filesystem>

#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::spank {

namespace {

constexpr std::size_t kCpuBytes = 1024; // 8192 processors: as many as any kernel is built for

} // namespace

std::span<const int> signals_of_users() {
    static constexpr std::array kThese{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    return kThese;
}

Expected<UniqueFd> readable_signals(std::span<const int> numbers) {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : numbers)
        sigaddset(&set, number);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd)
        return std::unexpected(errno_error("make", "a descriptor of signals"));
    return fd;
}

Expected<node::Program> describe_program(const std::vector<std::string> &command) {
    node::Program program;
    program.arguments = command;
    for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry)
        program.environment.emplace_back(*entry);
    std::error_code error;
    program.directory = std::filesystem::current_path(error);
    if (error)
        return failure("find", "the working directory", error.message(), error.value());
    for (std::uint32_t resource = 0; resource < RLIM_NLIMITS; ++resource) {
        rlimit limit{};
        if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0)
            program.limits.push_back({.resource = resource, .soft = limit.rlim_cur, .hard = limit.rlim_max});
    }
    program.mask = umask(0);
    umask(static_cast<mode_t>(program.mask));
    program.cpus.resize(kCpuBytes);
    const auto bytes = syscall(SYS_sched_getaffinity, 0, program.cpus.size(), program.cpus.data());
    if (bytes < 0)
        return std::unexpected(errno_error("find", "the processors on which this runs"));
    program.cpus.resize(static_cast<std::size_t>(bytes));
    return program;
}

} // namespace singularity::spank
