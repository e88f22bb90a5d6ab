// SPDX-License-Identifier: GPL-2.0-or-later
#include "client.hpp"

#include "common/unix_socket.hpp"

#include <cerrno>

#include <fmt/format.h>
#include <poll.h>

namespace singularity::agent {

namespace {

// The agent accepts at once; only so many who come at the same moment have to wait.
constexpr std::chrono::seconds kConnectPatience{10};

// Whoever hears it knows that another agent may come.
std::unexpected<Error> has_gone() {
    return failure("talk to", "the node agent", "it has ended or closed the connection", EPIPE);
}

} // namespace

Expected<Client> Client::connect(const std::filesystem::path &socket) {
    const auto deadline = Deadline::after(kConnectPatience);
    auto fd = connect_unix(socket, deadline);
    if (!fd) {
        const int code = fd.error().code;
        if (code == ETIMEDOUT)
            return std::unexpected(timeout_error(
                deadline, fmt::format("the node agent at {} to take a connection", socket.native())));
        if (code == ENAMETOOLONG)
            return propagate(fd);
        auto error = errno_error("reach the node agent at", socket.native(), code);
        if (code == ENOENT || code == ECONNREFUSED)
            error.why += ": is singularityd running on this machine?";
        return std::unexpected(std::move(error));
    }
    node::widen(fd->get());
    return Client(std::move(*fd));
}

Expected<void> Client::send_bytes(const std::string &bytes, std::span<const int> descriptors) {
    const int code = node::send_packet(socket_.get(), bytes, descriptors);
    if (code == EMSGSIZE)
        return failure(
            "ask", "the node agent",
            fmt::format(
                "the request has {} bytes, arguments and environment included; at most {} are possible, and "
                "Linux starts nothing with more than {} of both (execve(2)): unset variables, or put them "
                "into a file",
                bytes.size(), node::kPacketLimit, node::kProgramLimit),
            E2BIG);
    if (code == EFBIG)
        return failure(
            "ask", "the node agent",
            fmt::format("the request has {} bytes, arguments and environment included, and this process may "
                        "write no file of that size (RLIMIT_FSIZE): raise 'ulimit -f'",
                        bytes.size()),
            EFBIG);
    // The former where it had not read all that we had said before.
    if (code == ECONNRESET || code == EPIPE)
        return has_gone();
    if (code != 0)
        return std::unexpected(errno_error("ask", "the node agent", code));
    return {};
}

Expected<std::optional<node::Packet>> Client::look(std::uint32_t token) {
    for (;;) {
        if (auto found = early_.extract(token))
            return std::move(found.mapped());
        node::Packet packet;
        switch (node::receive_packet(socket_.get(), packet)) {
        case node::Received::nothing:
            return std::nullopt;
        case node::Received::hung_up:
            return has_gone();
        case node::Received::failed:
            return packet.refusal.empty() ? std::unexpected(errno_error("hear from", "the node agent"))
                                          : failure("understand", "the node agent", packet.refusal, EBADMSG);
        case node::Received::packet:
            break;
        }
        const auto header = node::header_of(packet.bytes);
        if (!header)
            return failure("understand", "the node agent", "it is of another release", EPROTO);
        ++received_;
        early_.emplace(header->token, std::move(packet));
    }
}

Expected<node::Packet> Client::await(std::uint32_t token, const Deadline &deadline) {
    for (;;) {
        auto packet = look(token);
        if (!packet)
            return propagate(packet);
        if (*packet)
            return std::move(**packet);
        pollfd answer{.fd = socket_.get(), .events = POLLIN, .revents = 0};
        if (poll(&answer, 1, deadline.poll_timeout()) < 0 && errno != EINTR)
            return std::unexpected(errno_error("wait for", "the node agent"));
        if (deadline.expired())
            return std::unexpected(timeout_error(deadline, "an answer of the node agent"));
    }
}

} // namespace singularity::agent
