// SPDX-License-Identifier: GPL-2.0-or-later
#include "unix_sockets.hpp"

#include "held_sockets.hpp"
#include "sock_diag.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace singularity::host {
namespace {

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
    unix_diag_req all{};
    all.sdiag_family = AF_UNIX;
    all.udiag_states = ~0U;
    all.udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_NAME;
    UnixSockets found;
    auto asked = for_each_socket(
        pid,
        {.body = std::as_bytes(std::span(&all, 1)), .what = "the node's Unix sockets", .module = "unix_diag"},
        [&](nlmsghdr *message) { add(message, found); });
    if (!asked)
        return propagate(asked);
    const auto may_be_of_others = [](const UnixSocket &one) { return one.listens || one.type == SOCK_DGRAM; };
    if (std::ranges::none_of(found, [&](const auto &entry) { return may_be_of_others(entry.second); }))
        return found;
    auto held = held_sockets(pid);
    if (!held)
        return propagate(held);
    std::erase_if(found, [&](const auto &entry) {
        return may_be_of_others(entry.second) && !held->contains(entry.first);
    });
    return found;
}

} // namespace singularity::host
