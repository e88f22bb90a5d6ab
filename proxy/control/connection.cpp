// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/control/connection.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace singularity::proxy_control {

namespace {

constexpr std::string_view kPeer = "the other end of a control socket";

union DescriptorBuffer {
    cmsghdr header;
    std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

// An error shows in the call that comes next.
void wait_for(int socket, short events, const Deadline &deadline) {
    pollfd waiting{.fd = socket, .events = events, .revents = 0};
    static_cast<void>(poll(&waiting, 1, deadline.poll_timeout()));
}

} // namespace

Expected<void> send_packet(int socket, std::span<const std::byte> bytes, int descriptor,
                           const Deadline &deadline) {
    // sendmsg(2) does not write to what the vector points to.
    iovec part{const_cast<std::byte *>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    DescriptorBuffer control{};
    if (descriptor >= 0) {
        message.msg_control = control.bytes.data();
        message.msg_controllen = control.bytes.size();
        cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
    }
    for (;;) {
        if (sendmsg(socket, &message, MSG_NOSIGNAL) >= 0)
            return {};
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return std::unexpected(errno_error("send to", kPeer));
        if (deadline.expired())
            return std::unexpected(timeout_error(deadline, kPeer));
        wait_for(socket, POLLOUT, deadline);
    }
}

Expected<void> receive_packet(int socket, std::span<std::byte> bytes, UniqueFd *descriptor,
                              const Deadline &deadline) {
    for (;;) {
        iovec part{bytes.data(), bytes.size()};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        DescriptorBuffer control{};
        message.msg_control = control.bytes.data();
        message.msg_controllen = control.bytes.size();
        const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) {
            if (deadline.expired())
                return std::unexpected(timeout_error(deadline, kPeer));
            wait_for(socket, POLLIN, deadline);
            continue;
        }
        if (got < 0)
            return std::unexpected(errno_error("receive from", kPeer));
        UniqueFd came;
        for (cmsghdr *head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head))
            if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(head), sizeof(fd));
                came = UniqueFd(fd);
            }
        if (got == 0)
            return failure("receive from", std::string(kPeer), "it has hung up", ECONNRESET);
        if (!std::cmp_equal(got, bytes.size()) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
            return failure("receive from", std::string(kPeer),
                           fmt::format("a packet has {} bytes, {} were expected", got, bytes.size()), EPROTO);
        if (descriptor != nullptr)
            *descriptor = std::move(came);
        return {};
    }
}

bool has_hung_up(int socket) {
    pollfd look{.fd = socket, .events = POLLIN | POLLRDHUP, .revents = 0};
    return poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

} // namespace singularity::proxy_control
