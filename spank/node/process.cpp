// SPDX-License-Identifier: GPL-2.0-or-later
#include "process.hpp"

#include <charconv>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::node {

namespace {

Expected<std::uint64_t> start_time_of(pid_t pid) {
    const auto path = fmt::format("/proc/{}/stat", pid);
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line))
        return failure("read", path, "there is no such process", ESRCH);
    // The name before the last parenthesis may hold anything; field 3 follows it.
    const auto end = line.rfind(')');
    std::istringstream fields(end == std::string::npos ? std::string() : line.substr(end + 1));
    constexpr int kStartTime = 22;
    std::string field;
    for (int number = 3; number <= kStartTime; ++number)
        fields >> field;
    std::uint64_t value = 0;
    if (std::from_chars(field.data(), field.data() + field.size(), value).ec != std::errc{})
        return failure("read", path, "it has no start time");
    return value;
}

Expected<std::uint64_t> namespace_of(pid_t pid, const char *kind) {
    const auto path = fmt::format("/proc/{}/ns/{}", pid, kind);
    struct stat about{};
    if (stat(path.c_str(), &about) != 0)
        return std::unexpected(errno_error("look at", path, errno == ENOENT ? ESRCH : errno));
    return about.st_ino;
}

} // namespace

Expected<Identity> identity_of(pid_t pid) {
    auto start_time = start_time_of(pid);
    if (!start_time)
        return propagate(start_time);
    auto pids = namespace_of(pid, "pid");
    if (!pids)
        return propagate(pids);
    auto network = namespace_of(pid, "net");
    if (!network)
        return propagate(network);
    return Identity{
        .pid = pid, .start_time = *start_time, .pid_namespace = *pids, .network_namespace = *network};
}

Expected<UniqueFd> hold(const Identity &identity) {
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, identity.pid, 0)));
    if (!pidfd)
        return std::unexpected(errno_error("hold process", std::to_string(identity.pid)));
    // The descriptor is of whatever has the number now, and the number cannot change hands while it is being
    // looked at: a process that ended meanwhile fails the check or shows itself as ended later.
    auto found = identity_of(identity.pid);
    if (!found)
        return propagate(found);
    // The network is not compared: a node that is being made changes to its own.
    if (found->start_time != identity.start_time || found->pid_namespace != identity.pid_namespace)
        return failure("hold process", std::to_string(identity.pid), "another process has its number now",
                       ESRCH);
    return pidfd;
}

Expected<void> kill_process(const UniqueFd &pidfd, const std::string &name) {
    if (syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0) != 0 && errno != ESRCH)
        return std::unexpected(errno_error("end", name));
    return {};
}

namespace {

// A criu that has seized processes waits for them for ever once they are dead, and they for it.
Expected<void> end_criu_of(pid_t pid) {
    constexpr std::string_view kTracer = "TracerPid:";
    std::ifstream status(fmt::format("/proc/{}/status", pid));
    std::string line;
    while (std::getline(status, line) && !line.starts_with(kTracer)) {
    }
    const pid_t tracer = line.starts_with(kTracer) ? std::stoi(line.substr(kTracer.size())) : 0;
    if (tracer == 0)
        return {};
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, tracer, 0)));
    std::ifstream comm(fmt::format("/proc/{}/comm", tracer));
    std::string name;
    if (!pidfd || !std::getline(comm, name) || name != "criu")
        return {};
    return kill_process(pidfd, "criu");
}

} // namespace

Expected<std::size_t> end_strays(const std::filesystem::path &source,
                                 const std::filesystem::path &mount_point) {
    struct stat wanted{};
    if (stat(source.c_str(), &wanted) != 0)
        return std::unexpected(errno_error("look at", source.native()));
    auto ours = namespace_of(getpid(), "mnt");
    if (!ours)
        return propagate(ours);
    std::size_t count = 0;
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator("/proc", error)) {
        const auto name = entry.path().filename().native();
        pid_t pid = 0;
        if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc{})
            continue;
        // Before it is looked at: the number may change hands afterwards.
        const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
        const auto theirs = namespace_of(pid, "mnt");
        struct stat found{};
        if (!pidfd || !theirs || *theirs == *ours ||
            stat((entry.path() / "root" / mount_point.relative_path()).c_str(), &found) != 0 ||
            found.st_dev != wanted.st_dev || found.st_ino != wanted.st_ino)
            continue;
        if (auto killed = kill_process(pidfd, fmt::format("process {}", pid)); !killed)
            return propagate(killed);
        if (auto killed = end_criu_of(pid); !killed)
            return propagate(killed);
        ++count;
    }
    if (error)
        return failure("look into", "/proc", error.message(), error.value());
    return count;
}

bool has_ended(const UniqueFd &pidfd) {
    pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
    return poll(&ended, 1, 0) == 1;
}

} // namespace singularity::node
