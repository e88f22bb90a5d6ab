// SPDX-License-Identifier: GPL-2.0-or-later
#include "service.hpp"

#include "log.hpp"
#include "messages.hpp"
#include "node/process.hpp"

#include <chrono>

#include <poll.h>
#include <sys/socket.h>

namespace singularity::network {

namespace {

using namespace std::chrono_literals;

constexpr auto kLonely = 60s; // for an agent that is being restarted
constexpr std::size_t kClientLimit = 8;

Failed failed(const Error &error) {
    return {.doing = error.doing, .on = error.on, .why = error.why, .code = error.code};
}

} // namespace

Expected<void> Service::serve() {
    for (;;) {
        if (ended_)
            return {};
        look_at_nodes();
        if (had_nodes_ && inits_.empty()) {
            network_.reset(); // before clients see that this has ended
            return {};
        }
        if (!inits_.empty() || !clients_.empty())
            lonely_.reset();
        else if (!lonely_)
            lonely_ = Deadline::after(kLonely);
        if (lonely_ && lonely_->expired())
            return std::unexpected(timeout_error(*lonely_, "an agent"));
        std::vector<pollfd> fds{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
        for (const auto &client : clients_)
            fds.push_back({.fd = client.get(), .events = POLLIN, .revents = 0});
        for (const auto &[number, init] : inits_)
            fds.push_back({.fd = init.get(), .events = POLLIN, .revents = 0});
        std::vector<int> of_network;
        if (network_)
            network_->watch(of_network);
        for (const int fd : of_network)
            fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
        auto next = network_ ? network_->next_deadline() : std::nullopt;
        if (lonely_ && (!next || lonely_->when() < next->when()))
            next = lonely_;
        if (poll(fds.data(), fds.size(), next ? next->poll_timeout() : -1) < 0 && errno != EINTR)
            return std::unexpected(errno_error("wait for", "requests"));
        if (network_)
            network_->work();
        std::erase_if(clients_, [this](const UniqueFd &client) { return !read(client); });
        if (fds[0].revents != 0)
            accept();
    }
}

void Service::accept() {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    ucred who{};
    socklen_t size = sizeof(who);
    if (!socket || getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != 0 ||
        clients_.size() >= kClientLimit)
        return;
    clients_.push_back(std::move(socket));
}

bool Service::read(const UniqueFd &client) {
    node::Packet packet;
    bool listens = true;
    for (;;) {
        const auto received = node::receive_packet(client.get(), packet);
        if (received == node::Received::nothing)
            return listens;
        if (received != node::Received::packet)
            return false;
        const auto reply = answer(packet);
        if (!reply)
            return false;
        // Who has hung up may have said before that this is to end: all of it is read.
        listens = node::send_packet(client.get(), *reply) == 0 && listens;
    }
}

void Service::look_at_nodes() {
    std::erase_if(inits_, [this](const auto &entry) {
        const bool ended = node::has_ended(entry.second);
        if (ended)
            network_->forget(entry.first);
        return ended;
    });
}

Expected<void> Service::attach(std::uint32_t number, node::Descriptors &given) {
    if (given.size() != 2)
        return failure("connect", "a node", "its network and its init did not come along", EINVAL);
    const UniqueFd home(given.take(0));
    UniqueFd init(given.take(1));
    if (auto attached = network_->attach(number, home); !attached)
        return attached;
    inits_.emplace(number, std::move(init));
    had_nodes_ = true;
    return {};
}

std::optional<std::string> Service::answer(node::Packet &packet) {
    const auto header = node::header_of(packet.bytes);
    if (!header)
        return std::nullopt;
    const auto token = header->token;
    const auto reply = [token](const Expected<void> &done) {
        if (!done)
            kLog.error("{}", done.error().message());
        return done ? node::encode(Done{}, token) : node::encode(failed(done.error()), token);
    };
    if (const auto request = node::decode<PrepareRequest>(packet.bytes)) {
        if (network_)
            return reply(failure("make", "the network", "there is one already", EEXIST));
        auto made = JobNetwork::make(request->plan);
        if (!made)
            return reply(propagate(made));
        network_ = std::move(*made);
        return node::encode(Prepared{.mtu = network_->mtu()}, token);
    }
    if (node::decode<EndRequest>(packet.bytes)) {
        ended_ = true;
        network_.reset();
        return node::encode(Done{}, token);
    }
    if (node::decode<StatusRequest>(packet.bytes))
        return node::encode(State{.prepared = network_.has_value(),
                                  .connected = network_ && network_->connected(),
                                  .cut = network_ && network_->is_cut(),
                                  .nodes = network_ ? network_->nodes() : std::vector<std::uint32_t>()},
                            token);
    if (!network_)
        return reply(failure("use", "the network", "it is not made yet", EAGAIN));
    if (const auto request = node::decode<ConnectRequest>(packet.bytes))
        return reply(network_->connect(request->plan));
    if (const auto request = node::decode<AttachRequest>(packet.bytes))
        return reply(attach(request->node, packet.descriptors));
    if (const auto request = node::decode<PublishRequest>(packet.bytes)) {
        auto published = network_->publish(request->plan);
        return published ? node::encode(PublishedPorts{.ports = std::move(*published)}, token)
                         : reply(propagate(published));
    }
    if (node::decode<CutRequest>(packet.bytes))
        return reply(network_->set_cut(true));
    if (node::decode<OpenRequest>(packet.bytes))
        return reply(network_->set_cut(false));
    if (node::decode<ReleaseRequest>(packet.bytes))
        return reply(network_->release());
    return std::nullopt;
}

} // namespace singularity::network
