// SPDX-License-Identifier: GPL-2.0-or-later
#include "process.hpp"

#include "common/proc.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::node {

namespace {

Expected<std::uint64_t> start_time_of(pid_t pid) {
    const auto path = fmt::format("/proc/{}/stat", pid);
    auto text = proc::read(path);
    if (!text && (text.error().code == ENOENT || text.error().code == ESRCH))
        return failure("read", path, "there is no such process", ESRCH);
    if (!text) // of the process nothing is known
        return propagate(text);
    constexpr std::size_t kStartTime = 22 - 3; // the third is the first
    const auto columns = proc::stat_columns(*text);
    std::uint64_t value = 0;
    if (columns.size() <= kStartTime ||
        std::from_chars(columns[kStartTime].begin(), columns[kStartTime].end(), value).ec != std::errc{})
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
    const auto status = proc::read(fmt::format("/proc/{}/status", pid));
    const auto said = status ? proc::status_line(*status, "TracerPid") : std::string_view();
    pid_t tracer = 0;
    std::from_chars(said.data(), said.data() + said.size(), tracer);
    if (tracer == 0)
        return {};
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, tracer, 0)));
    const auto name = proc::read(fmt::format("/proc/{}/comm", tracer));
    if (!pidfd || !name || *name != "criu\n")
        return {};
    return kill_process(pidfd, "criu");
}

// What a mount of the directory looks like in every mount namespace.
struct Content {
    dev_t device = 0;
    std::string root;
};

Expected<Content> content_of(const std::filesystem::path &path) {
    std::error_code error;
    const auto directory = std::filesystem::canonical(path, error);
    if (error)
        return failure("find", path.native(), error.message(), error.value());
    struct statx about{};
    if (statx(AT_FDCWD, directory.c_str(), AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &about) != 0)
        return std::unexpected(errno_error("look at", directory.native()));
    auto text = proc::read("/proc/self/mountinfo");
    if (!text)
        return propagate(text);
    for (const auto &mount : proc::mounts(*text)) {
        if (mount.id != about.stx_mnt_id)
            continue;
        const auto below = directory.lexically_relative(mount.point);
        return Content{.device = mount.device,
                       .root = (std::filesystem::path(mount.root) / below).lexically_normal().native()};
    }
    return failure("find the mount of", directory.native(), "it is not in /proc/self/mountinfo");
}

// Asked from texts of the kernel's: in a namespace of a user's a file system of his may be mounted there, and
// to look at it would be to wait for him.
bool has_at(pid_t pid, const Content &wanted, const std::filesystem::path &point) {
    const auto text = proc::read(fmt::format("/proc/{}/mountinfo", pid));
    return text && std::ranges::any_of(proc::mounts(*text), [&](const proc::Mount &mount) {
               return mount.point == point && mount.device == wanted.device && mount.root == wanted.root;
           });
}

} // namespace

Expected<std::size_t> end_strays(const std::filesystem::path &source,
                                 const std::filesystem::path &mount_point) {
    auto wanted = content_of(source);
    if (!wanted)
        return propagate(wanted);
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
        if (!pidfd && errno != ESRCH)
            return std::unexpected(errno_error("hold process", std::to_string(pid)));
        const auto theirs = namespace_of(pid, "mnt");
        if (!pidfd || !theirs || *theirs == *ours || !has_at(pid, *wanted, mount_point))
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
