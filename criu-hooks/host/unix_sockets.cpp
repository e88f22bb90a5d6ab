// SPDX-License-Identifier: GPL-2.0-or-later
#include "unix_sockets.hpp"

#include "common/name_space.hpp"
#include "common/unique_fd.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::host {
namespace {

Expected<void> ask(int socket) {
    struct {
        nlmsghdr head{};
        unix_diag_req body{};
    } request;
    request.head.nlmsg_len = sizeof(request);
    request.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.body.sdiag_family = AF_UNIX;
    request.body.udiag_states = ~0U;
    request.body.udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_NAME;
    if (send(socket, &request, sizeof(request), 0) != static_cast<ssize_t>(sizeof(request)))
        return std::unexpected(errno_error("ask for", "the node's Unix sockets"));
    return {};
}

void add(nlmsghdr *message, UnixSockets &found) {
    const auto *const body = static_cast<unix_diag_msg *>(NLMSG_DATA(message));
    UnixSocket &one = found[body->udiag_ino];
    one.type = body->udiag_type;
    one.listens = body->udiag_state == TCP_LISTEN;
    auto left = static_cast<int>(message->nlmsg_len - NLMSG_LENGTH(sizeof(*body)));
    auto *attribute =
        reinterpret_cast<rtattr *>(static_cast<char *>(NLMSG_DATA(message)) + NLMSG_ALIGN(sizeof(*body)));
    for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
        const auto *const data = static_cast<const char *>(RTA_DATA(attribute));
        if (attribute->rta_type == UNIX_DIAG_NAME)
            one.name.assign(data, RTA_PAYLOAD(attribute));
        if (attribute->rta_type != UNIX_DIAG_PEER)
            continue;
        std::uint32_t inode = 0;
        std::memcpy(&inode, data, sizeof(inode));
        one.peer = inode;
    }
}

} // namespace

Expected<UnixSockets> unix_sockets(pid_t pid) {
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd)
        return std::unexpected(errno_error("open a pidfd of", fmt::format("process {}", pid)));
    auto network =
        NameSpace::of_process(pidfd.get(), NameSpaceKind::kNetwork, fmt::format("process {}", pid));
    if (!network)
        return propagate(network);
    UniqueFd socket;
    {
        auto visit = NameSpaceVisit::to(*network);
        if (!visit)
            return propagate(visit);
        socket = UniqueFd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
        if (!socket)
            return std::unexpected(errno_error("make", "a netlink socket"));
    }
    if (auto asked = ask(socket.get()); !asked)
        return propagate(asked);
    UnixSockets found;
    alignas(nlmsghdr) std::array<char, 65536> buffer{};
    for (;;) {
        const ssize_t got = recv(socket.get(), buffer.data(), buffer.size(), 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return std::unexpected(errno_error("read", "the node's Unix sockets"));
        auto left = static_cast<unsigned>(got);
        for (auto *message = reinterpret_cast<nlmsghdr *>(buffer.data()); NLMSG_OK(message, left);
             message = NLMSG_NEXT(message, left)) {
            if (message->nlmsg_type == NLMSG_DONE)
                return found;
            if (message->nlmsg_type == NLMSG_ERROR)
                return failure("read", "the node's Unix sockets",
                               "the kernel refuses: is unix_diag built in or loadable?");
            add(message, found);
        }
    }
}

} // namespace singularity::host
