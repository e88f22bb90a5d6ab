// SPDX-License-Identifier: GPL-2.0-or-later
#include "process.hpp"

#include <charconv>
#include <csignal>
#include <fstream>
#include <sstream>

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

bool has_ended(const UniqueFd &pidfd) {
    pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
    return poll(&ended, 1, 0) == 1;
}

} // namespace singularity::node
