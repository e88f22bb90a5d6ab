// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/channel/link.hpp"

#include "common/unix_socket.hpp"

#include <array>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

namespace singularity::channel {

namespace {

constexpr std::string_view kPeer = "the other end of a session's socket";

// Room for the control message that carries descriptors, aligned as cmsg(3) wants it.
union ControlBuffer {
    cmsghdr header;
    std::array<char, CMSG_SPACE(kDescriptorLimit * sizeof(int))> bytes;
};

std::unexpected<Error> hung_up() {
    return failure("receive from", std::string(kPeer), "it has hung up", ECONNRESET);
}

std::unexpected<Error> broken(std::string why) {
    return failure("receive from", std::string(kPeer), std::move(why), EPROTO);
}

// Takes every descriptor that came, even those that will be refused: otherwise they leak.
std::vector<UniqueFd> take_descriptors(msghdr &message) {
    std::vector<UniqueFd> found;
    for (cmsghdr *part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
            found.emplace_back(fd);
        }
    }
    return found;
}

} // namespace

Expected<Link> Link::adopt(UniqueFd socket) {
    const int flags = fcntl(socket.get(), F_GETFL);
    if (flags < 0 || fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0)
        return std::unexpected(errno_error("set up", "a session's socket"));
    return Link(std::move(socket));
}

Expected<Link> Link::connect(const std::filesystem::path &path, const Deadline &deadline) {
    auto socket = connect_unix(path, deadline);
    if (!socket)
        return propagate(socket);
    return Link(std::move(*socket));
}

Expected<void> Link::send(PacketType type, std::uint64_t ticket, std::span<const std::byte> body,
                          std::span<const int> descriptors, const Deadline &deadline) {
    if (body.size() > kPacketLimit || descriptors.size() > kDescriptorLimit)
        return failure("send to", std::string(kPeer),
                       fmt::format("{} bytes and {} descriptors; a packet has room for {} and {}",
                                   body.size(), descriptors.size(), kPacketLimit, kDescriptorLimit),
                       EMSGSIZE);
    PacketHeader header{
        .type = std::to_underlying(type), .size = static_cast<std::uint32_t>(body.size()), .ticket = ticket};
    // sendmsg(2) does not write to what the vectors point to.
    std::array<iovec, 2> parts{
        {{&header, sizeof(header)}, {const_cast<std::byte *>(body.data()), body.size()}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    ControlBuffer control{};
    if (!descriptors.empty()) {
        message.msg_control = control.bytes.data();
        message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr *part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
    }
    const std::scoped_lock lock(sender_->order);
    for (;;) {
        if (sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0) {
            sender_->sent.fetch_add(1, std::memory_order_release);
            return {};
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return std::unexpected(errno_error("send to", kPeer));
        if (deadline.expired())
            return std::unexpected(timeout_error(deadline, kPeer));
        pollfd waiting{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
        // An error shows in the next sendmsg.
        static_cast<void>(poll(&waiting, 1, deadline.poll_timeout()));
    }
}

Expected<std::optional<Packet>> Link::receive() {
    PacketHeader header{};
    std::vector<std::byte> body(kPacketLimit);
    std::array<iovec, 2> parts{{{&header, sizeof(header)}, {body.data(), body.size()}}};
    ControlBuffer control{};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    message.msg_control = control.bytes.data();
    message.msg_controllen = sizeof(control.bytes);
    ssize_t size = 0;
    do
        size = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    while (size < 0 && errno == EINTR);
    if (size < 0) {
        if (errno == EAGAIN)
            return std::nullopt;
        if (errno == ECONNRESET)
            return hung_up();
        return std::unexpected(errno_error("receive from", kPeer));
    }
    Packet packet;
    packet.descriptors = take_descriptors(message);
    if (size == 0)
        return hung_up();
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        return broken(
            fmt::format("a packet has more than {} bytes or {} descriptors", kPacketLimit, kDescriptorLimit));
    if (std::cmp_less(size, sizeof(header)) || static_cast<std::size_t>(size) - sizeof(header) != header.size)
        return broken(fmt::format("a packet of {} bytes says that its body has {}", size, header.size));
    body.resize(header.size);
    packet.type = static_cast<PacketType>(header.type);
    packet.ticket = header.ticket;
    packet.body = std::move(body);
    return packet;
}

Expected<Packet> Link::receive(const Deadline &deadline) {
    for (;;) {
        auto packet = receive();
        if (!packet)
            return propagate(packet);
        if (*packet)
            return std::move(**packet);
        if (deadline.expired())
            return std::unexpected(timeout_error(deadline, "a packet on a session's socket"));
        pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
        static_cast<void>(poll(&waiting, 1, deadline.poll_timeout()));
    }
}

bool Link::await_hang_up(const Deadline &deadline) const {
    pollfd other{.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
    while (!deadline.expired())
        if (poll(&other, 1, deadline.poll_timeout()) > 0)
            return true;
    return false;
}

void Link::close() {
    const std::scoped_lock lock(sender_->order);
    socket_.reset();
}

void Link::take_over(Link other) {
    const std::scoped_lock lock(sender_->order);
    socket_ = std::move(other.socket_);
}

void Link::shut_down() const noexcept {
    // Fails only where the other side has hung up already.
    static_cast<void>(::shutdown(socket_.get(), SHUT_RDWR));
}

} // namespace singularity::channel
