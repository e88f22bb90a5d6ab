// SPDX-License-Identifier: GPL-2.0-or-later
#include "host_node.hpp"

#include "common/node_address.hpp"
#include "criu-hooks/host/as_user.hpp"
#include "job_output.hpp"
#include "node/process.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::worker {

namespace {

constexpr std::string_view kLogPrefix = "log.";

bool is_number(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// log.N and log.N.old
bool is_log(std::string_view name) {
    if (!name.starts_with(kLogPrefix))
        return false;
    name.remove_prefix(kLogPrefix.size());
    if (name.ends_with(".old"))
        name.remove_suffix(4);
    return is_number(name);
}

bool is_in(const std::filesystem::path &process, std::uint64_t pid_namespace) {
    struct stat about{};
    return stat((process / "ns/pid").c_str(), &about) == 0 && about.st_ino == pid_namespace;
}

// The kernel makes the end that accept(2) gives in the network of who connects.
bool is_made_outside(const UniqueFd &socket, ino_t network) {
    const UniqueFd its(socket ? ioctl(socket.get(), SIOCGSKNS) : -1);
    struct stat about{};
    return its && fstat(its.get(), &about) == 0 && about.st_ino != network;
}

std::vector<UniqueFd> connections_of(const UniqueFd &process, pid_t pid) {
    std::vector<UniqueFd> out;
    struct stat network{};
    if (stat(fmt::format("/proc/{}/ns/net", pid).c_str(), &network) != 0)
        return out;
    std::error_code gone; // descriptors are closed while they are looked at
    for (const auto &entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), gone)) {
        const auto name = entry.path().filename().native();
        int number = -1;
        std::from_chars(name.data(), name.data() + name.size(), number);
        if (!std::filesystem::read_symlink(entry.path(), gone).native().starts_with("socket:["))
            continue;
        UniqueFd socket(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), number, 0)));
        if (is_made_outside(socket, network.st_ino))
            out.push_back(std::move(socket));
    }
    return out;
}

} // namespace

Expected<void> await_hang_up(const node::Record &record, const Deadline &deadline) {
    const auto init = node::hold(record.init);
    if (!init)
        return std::unexpected(init.error());
    return wait_until([&] { return connections_of(*init, record.init.pid).empty(); }, deadline,
                      fmt::format("the init of {} to close its connection", record.spec.name));
}

Expected<std::vector<UniqueFd>> connections_of_init(const node::Record &record) {
    const auto init = node::hold(record.init);
    if (!init)
        return std::unexpected(init.error());
    return connections_of(*init, record.init.pid);
}

std::vector<std::string> neighbours_of(const node::Spec &spec) {
    std::vector<std::string> out;
    out.reserve(2 * spec.neighbours.size());
    for (const auto &one : spec.neighbours) {
        out.push_back(one.address);
        in_addr address{};
        std::array<char, INET6_ADDRSTRLEN> text{};
        if (inet_pton(AF_INET, one.address.c_str(), &address) != 1)
            continue;
        const auto ipv6 = ipv6_of(ntohl(address.s_addr));
        out.emplace_back(inet_ntop(AF_INET6, &ipv6, text.data(), text.size()));
    }
    return out;
}

bool has_way_out(const node::Spec &spec) { return !spec.job.empty(); }

host::Context context_of(const node::Spec &spec, AgentLink &agent, const char *phase) {
    host::Context context;
    context.uid = spec.uid;
    context.gid = spec.gid;
    context.groups.assign(spec.groups.begin(), spec.groups.end());
    context.no_new_privileges = true;
    std::error_code error;
    context.as_user =
        std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / as_user::kLibrary;
    context.progress = [&agent, phase](std::string_view /*stage*/) {
        agent.progress(phase);
        return agent.still_wanted();
    };
    return context;
}

Expected<Outside> outside_of(const node::Record &record) {
    std::set<std::string> wanted;
    for (const auto &given : record.given)
        wanted.insert(given.key);
    Outside out;
    std::error_code error;
    for (const auto &process : std::filesystem::directory_iterator("/proc", error)) {
        if (wanted.empty())
            break;
        if (!is_number(process.path().filename().native()) ||
            !is_in(process.path(), record.init.pid_namespace))
            continue;
        std::error_code gone; // processes end while they are looked at
        for (const auto &entry : std::filesystem::directory_iterator(process.path() / "fd", gone)) {
            const auto link = std::filesystem::read_symlink(entry.path(), gone).native();
            if (!wanted.contains(link))
                continue;
            // O_PATH: neither a reader nor a writer of the pipe.
            UniqueFd fd(open(entry.path().c_str(), O_PATH | O_CLOEXEC));
            if (!fd)
                continue;
            out.descriptors.push_back({.key = link, .fd = fd.get()});
            out.held.push_back(std::move(fd));
            wanted.erase(link);
        }
    }
    if (error)
        return failure("look into", "/proc", error.message(), error.value());
    return out;
}

std::vector<host::OutsideMount> mounts_in(const node::Record &record, const node::Room &room) {
    std::vector<host::OutsideMount> out;
    for (const auto &mount : room.external_mounts(record.spec))
        out.push_back({.key = mount.key, .path = mount.mount_point, .kept = mount.kept});
    return out;
}

std::vector<host::OutsideMount> mounts_from(const node::Record &record, const node::Room &room) {
    std::vector<host::OutsideMount> out;
    for (const auto &mount : room.external_mounts(record.spec))
        out.push_back({.key = mount.key, .path = mount.source, .kept = mount.kept});
    return out;
}

Expected<void> copy_logs(const std::filesystem::path &from, const std::filesystem::path &to) {
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator(from, error)) {
        const auto name = entry.path().filename();
        if (!is_log(name.native()))
            continue;
        if (auto copied = copy_with_holes(entry.path(), to / name); !copied)
            return copied;
    }
    if (error)
        return failure("copy the output of tasks from", from.native(), error.message(), error.value());
    return {};
}

} // namespace singularity::worker
