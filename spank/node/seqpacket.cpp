// SPDX-License-Identifier: GPL-2.0-or-later
#include "seqpacket.hpp"

#include "packet.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <unistd.h>

namespace singularity::node {

Descriptors::~Descriptors() {
    for (const int fd : fds_)
        if (fd >= 0)
            close(fd);
}

void widen(int socket) {
    // The kernel counts its own overhead as well (socket(7)); the forced form is root's.
    const int size = kPacketLimit;
    if (setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) != 0)
        setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

int send_packet(int socket, std::string_view bytes, std::span<const int> descriptors) {
    if (bytes.size() > kPacketLimit || descriptors.size() > kTrustedDescriptorLimit)
        return EMSGSIZE;
    // sendmsg(2) does not write there
    iovec part{.iov_base = const_cast<char *>(bytes.data()),
               .iov_len = bytes.size()}; // NOLINT(cppcoreguidelines-pro-type-const-cast)
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kTrustedDescriptorLimit)> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr *const head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
    }
    for (;;) {
        if (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno != EINTR)
            return errno;
    }
}

namespace {

// ECONNRESET tells, once, that the other end has hung up without having read all it was sent; what it had
// sent itself lies there still.
ssize_t receive(int socket, msghdr &message, int flags) {
    for (;;) {
        const ssize_t got = recvmsg(socket, &message, flags | MSG_DONTWAIT);
        if (got >= 0 || (errno != EINTR && errno != ECONNRESET))
            return got;
    }
}

} // namespace

Received receive_packet(int socket, Packet &into, std::size_t most) {
    into = {};
    // The length of what comes first; nothing is taken yet.
    msghdr none{};
    ssize_t got = receive(socket, none, MSG_PEEK | MSG_TRUNC);
    if (got < 0)
        return errno == EAGAIN ? Received::nothing : Received::failed;
    if (got == 0)
        return Received::hung_up;
    into.bytes.resize(std::min(static_cast<std::size_t>(got), kPacketLimit)); // MSG_TRUNC tells of more
    iovec part{.iov_base = into.bytes.data(), .iov_len = into.bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kTrustedDescriptorLimit)> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = std::min(control.size(), CMSG_SPACE(sizeof(int) * most));
    got = receive(socket, message, MSG_CMSG_CLOEXEC);
    if (got <= 0)
        return Received::failed;
    for (cmsghdr *head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(head) + (i * sizeof(int)), sizeof(fd));
            into.descriptors.add(fd);
        }
    }
    into.bytes.resize(static_cast<std::size_t>(got));
    return (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ? Received::failed : Received::packet;
}

} // namespace singularity::node
