// SPDX-License-Identifier: GPL-2.0-or-later
#include "agent_link.hpp"

#include <poll.h>

namespace singularity::worker {

namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenNews = 200ms;
constexpr auto kSendPatience = 10s;

} // namespace

Expected<void> AgentLink::send(const std::string &bytes, std::span<const int> descriptors) const {
    int code = 0;
    const auto sent = [&] {
        code = node::send_packet(socket_, bytes, descriptors);
        return code != EAGAIN;
    };
    if (auto done = wait_until(sent, Deadline::after(kSendPatience), "the agent to listen"); !done)
        return done;
    if (code != 0)
        return std::unexpected(errno_error("tell", "the agent", code));
    return {};
}

Expected<node::Packet> AgentLink::receive(const Deadline &deadline) {
    for (;;) {
        node::Packet packet;
        switch (node::receive_packet(socket_, packet, {.descriptors = node::kTrustedDescriptorLimit})) {
        case node::Received::packet:
            return packet;
        case node::Received::hung_up:
            return failure("hear from", "the agent", "it has ended or has given up", EPIPE);
        case node::Received::failed:
            return packet.refusal.empty() ? std::unexpected(errno_error("hear from", "the agent"))
                                          : failure("understand", "the agent", packet.refusal, EBADMSG);
        case node::Received::nothing:
            break;
        }
        pollfd readable{.fd = socket_, .events = POLLIN, .revents = 0};
        if (poll(&readable, 1, deadline.poll_timeout()) < 0 && errno != EINTR)
            return std::unexpected(errno_error("wait for", "the agent"));
        if (deadline.expired())
            return std::unexpected(timeout_error(deadline, "the agent"));
    }
}

Expected<void> AgentLink::still_wanted() const {
    pollfd socket{.fd = socket_, .events = 0, .revents = 0};
    if (poll(&socket, 1, 0) == 1 && (socket.revents & (POLLHUP | POLLERR)) != 0)
        return failure("go on", "", "the node agent has ended, or the node was ended", ECANCELED);
    return {};
}

void AgentLink::progress(const std::string &phase, std::uint64_t bytes, std::uint64_t total) {
    {
        const std::scoped_lock lock(lock_);
        const auto now = Deadline::Clock::now();
        if (phase == phase_ && now - told_ < kBetweenNews)
            return;
        phase_ = phase;
        told_ = now;
    }
    // Who does not listen misses news, nothing else.
    static_cast<void>(node::send_packet(
        socket_, node::encode(agent::Progress{.phase = phase, .bytes = bytes, .total = total})));
}

} // namespace singularity::worker
