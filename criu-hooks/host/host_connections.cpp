// SPDX-License-Identifier: GPL-2.0-or-later
#include "host_connections.hpp"

#include "check_files.hpp"
#include "common/name_space.hpp"
#include "common/proc.hpp"
#include "common/text.hpp"
#include "file.hpp"
#include "held_sockets.hpp"
#include "outside.hpp"
#include "proc.hpp"
#include "saved_sockets.hpp"
#include "unix_sockets.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

namespace singularity::host {
namespace {

// Whose client libraries end the program when the connection ends, instead of making another.
bool ends_its_clients(std::string_view path) {
    constexpr std::array<std::string_view, 3> kBelow{"/run/dbus/", "/var/run/dbus/", "/tmp/.X11-unix/"};
    return std::ranges::any_of(kBelow, [path](std::string_view each) { return path.starts_with(each); }) ||
           (path.starts_with("/run/user/") && path.ends_with("/bus"));
}

int kind_of(int socket) {
    int value = -1;
    socklen_t size = sizeof(value);
    return getsockopt(socket, SOL_SOCKET, SO_TYPE, &value, &size) == 0 ? value : -1;
}

// As it was bound by the one who listens, or receives. Empty: it has no name in the file system.
std::string peer_path(int socket) {
    sockaddr_un address{};
    socklen_t size = sizeof(address);
    if (getpeername(socket, reinterpret_cast<sockaddr *>(&address), &size) != 0 ||
        size <= offsetof(sockaddr_un, sun_path) || address.sun_path[0] != '/')
        return {};
    const auto most = std::min<std::size_t>(size, sizeof(address)) - offsetof(sockaddr_un, sun_path);
    return {address.sun_path, strnlen(address.sun_path, most)};
}

// Those that the caller looks after.
std::set<std::uint64_t> declared(const DumpRequest &request) {
    std::set<std::uint64_t> out;
    for (const auto &each : request.descriptors) {
        struct stat about{};
        if (fstat(each.fd, &about) == 0 && S_ISSOCK(about.st_mode))
            out.insert(about.st_ino);
    }
    return out;
}

std::unexpected<Error> not_now(const std::string &what, std::string why) {
    return failure("save", what, std::move(why), EAGAIN);
}

// A copy of the descriptor, if the other end may be left behind.
Expected<UniqueFd> reach(const HeldSocket &socket) {
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, socket.pid, 0)));
    UniqueFd out(pidfd ? static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), socket.number, 0)) : -1);
    if (!out)
        return std::unexpected(errno_error("reach", socket.what));
    if (auto why = why_not_left(out.get()); !why.empty())
        return cannot_save(socket.what, std::move(why));
    return out;
}

Expected<void> disconnect(const HeldSocket &held) {
    auto socket = reach(held);
    if (!socket)
        return propagate(socket);
    char one = 0; // what waits would be lost
    if (recv(socket->get(), &one, sizeof(one), MSG_PEEK | MSG_DONTWAIT) >= 0)
        return not_now(held.what, "a message waits in it that its program has not read yet");
    constexpr sockaddr kNobody{.sa_family = AF_UNSPEC, .sa_data = {}};
    if (connect(socket->get(), &kNobody, sizeof(kNobody)) != 0)
        return std::unexpected(errno_error("disconnect", held.what));
    return {};
}

// criu knows no sender of descriptors that wait in it.
Expected<void> check_stream(const HeldSocket &held) {
    auto socket = reach(held);
    if (!socket)
        return propagate(socket);
    auto info = proc::read(fmt::format("/proc/self/fdinfo/{}", socket->get()));
    if (!info)
        return propagate(info);
    if (number_after(*info, "scm_fds:").value_or(0) != 0)
        return not_now(held.what, "a descriptor waits in it that its program has not received yet");
    return {};
}

Expected<UniqueFd> ended_connection() {
    std::array<int, 2> ends{-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return std::unexpected(errno_error("make", "the end of a connection that has ended"));
    const UniqueFd other(ends[1]);
    return UniqueFd(ends[0]);
}

} // namespace

bool is_of_host(const UnixSocket &other_end, const UnixSockets &sockets) {
    return other_end.name.starts_with('/') && std::ranges::none_of(sockets, [&](const auto &entry) {
               return entry.second.listens && entry.second.name == other_end.name;
           });
}

std::string why_not_left(int socket) {
    const int kind = kind_of(socket);
    const auto path = peer_path(socket);
    if (path.empty() || (kind != SOCK_STREAM && kind != SOCK_DGRAM))
        return kOutside;
    if (ends_its_clients(path))
        return fmt::format("it is connected with {} of the host, whose clients end when it does: close it "
                           "before a checkpoint",
                           quote(path));
    return {};
}

Expected<std::vector<std::string>> leave_host_connections(const DumpRequest &request) {
    auto sockets = unix_sockets(request.init);
    if (!sockets)
        return propagate(sockets);
    auto held = held_sockets(request.init);
    if (!held)
        return propagate(held);
    const auto not_ours = declared(request);
    std::vector<std::string> out;
    for (const auto &[inode, by] : *held) {
        const auto self = sockets->find(inode);
        if (self == sockets->end() || self->second.peer == 0 || not_ours.contains(inode) ||
            held->contains(self->second.peer))
            continue;
        const auto other_end = sockets->find(self->second.peer);
        if (self->second.type == SOCK_DGRAM && other_end == sockets->end()) {
            if (auto gone = disconnect(by); !gone)
                return propagate(gone);
        } else if (self->second.type == SOCK_STREAM && other_end != sockets->end() &&
                   is_of_host(other_end->second, *sockets)) {
            if (auto good = check_stream(by); !good)
                return propagate(good);
            out.push_back(fmt::format("unix[{}]", inode));
        }
    }
    return out;
}

namespace {

struct SavedSocket {
    std::uint64_t type = 0;
    std::uint64_t peer = 0;
    bool saved = true;
};

Expected<std::map<std::uint64_t, SavedSocket>> saved_sockets(int images) {
    std::map<std::uint64_t, SavedSocket> out;
    namespace field = saved_socket;
    const auto look = [&](const std::vector<Field> &fields) -> Expected<void> {
        const auto value = [&](std::uint32_t number) {
            const Field *const one = find(fields, number);
            return one == nullptr ? 0 : one->value;
        };
        out[value(field::kInode)] = {.type = value(field::kType),
                                     .peer = value(field::kPeer),
                                     .saved = (value(field::kFlags) & field::kNotSaved) == 0};
        return {};
    };
    if (auto read = for_each_saved_socket(images, look); !read)
        return propagate(read);
    return out;
}

} // namespace

Expected<std::set<std::string>> half_connections(int images) {
    auto sockets = saved_sockets(images);
    if (!sockets)
        return propagate(sockets);
    std::set<std::string> out;
    for (const auto &[inode, socket] : *sockets)
        if (const auto peer = sockets->find(socket.peer);
            socket.saved && socket.type == SOCK_STREAM && peer != sockets->end() && !peer->second.saved)
            out.insert(fmt::format("socket:[{}]", inode));
    return out;
}

Expected<std::vector<std::pair<std::string, UniqueFd>>> ended_connections(const RestoreRequest &request) {
    auto ended = half_connections(request.images);
    if (!ended)
        return propagate(ended);
    auto table = read_table(request.images);
    if (!table)
        return propagate(table);
    for (const auto &[key, given] : *table)
        ended->erase(given);
    std::vector<std::pair<std::string, UniqueFd>> out;
    if (ended->empty())
        return out;
    auto there = NameSpace::open(fmt::format("/proc/self/fd/{}", request.network), NameSpaceKind::kNetwork);
    auto visit = there ? NameSpaceVisit::to(*there) : propagate(there);
    if (!visit)
        return propagate(visit);
    for (const auto &name : *ended) {
        auto made = ended_connection();
        if (!made)
            return propagate(made);
        out.emplace_back(name, std::move(*made));
    }
    return out;
}

} // namespace singularity::host
