// SPDX-License-Identifier: GPL-2.0-or-later
#include "service.hpp"

#include "log.hpp"
#include "node/network.hpp"
#include "node/process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <set>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace singularity::network {

namespace {

using namespace std::chrono_literals;

constexpr auto kLonely = 60s; // for an agent that is being restarted
constexpr std::size_t kClientLimit = 8;

Failed failed(const Error &error) {
    return {.doing = error.doing, .on = error.on, .why = error.why, .code = error.code};
}

bool is_same(const UniqueFd &one, const UniqueFd &other) {
    struct stat first{};
    struct stat second{};
    return fstat(one.get(), &first) == 0 && fstat(other.get(), &second) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

} // namespace

Expected<void> Service::serve() {
    for (;;) {
        if (ended_)
            return {};
        look_at_nodes();
        if (had_nodes_ && attached_.empty() && !network_->shared()) {
            network_.reset(); // before clients see that this has ended
            return {};
        }
        if (!attached_.empty() || !clients_.empty())
            lonely_.reset();
        else if (!lonely_)
            lonely_ = Deadline::after(kLonely);
        if (lonely_ && lonely_->expired())
            return std::unexpected(timeout_error(*lonely_, "an agent"));
        std::vector<pollfd> fds{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
        for (const auto &client : clients_)
            fds.push_back({.fd = client.get(), .events = POLLIN, .revents = 0});
        for (const auto &one : attached_)
            fds.push_back({.fd = one.init.get(), .events = POLLIN, .revents = 0});
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
        const int descriptor = reply->descriptor.get();
        listens = node::send_packet(client.get(), reply->bytes,
                                    {&descriptor, reply->descriptor ? std::size_t{1} : 0}) == 0 &&
                  listens;
    }
}

void Service::look_at_nodes() {
    std::vector<Attached> ended;
    std::erase_if(attached_, [&](Attached &one) {
        const bool has_ended = node::has_ended(one.init);
        if (has_ended)
            ended.push_back(std::move(one));
        return has_ended;
    });
    for (const auto &one : ended) {
        network_->close_way_in(one.node, one.owner);
        if (!network_->shared())
            network_->forget(one.node);
        // What it has cut is for nobody to open any more.
        if (network_->shared() && network_->is_cut() &&
            std::ranges::find(attached_, one.owner, &Attached::owner) == attached_.end())
            if (auto opened = network_->set_cut(false, one.owner); !opened)
                kLog.error("{}", opened.error().message());
    }
}

Expected<void> Service::prepare(const Prepare &plan) {
    if (!network_) {
        auto made = JobNetwork::make(plan);
        if (!made)
            return propagate(made);
        network_ = std::move(*made);
        return {};
    }
    if (!network_->shared() || !plan.shared)
        return failure("make", "the network", "there is one already", EEXIST);
    return check(plan);
}

Expected<UniqueFd> Service::place(const PlaceRequest &request) {
    const auto on = fmt::format("node{}", request.node);
    if (!network_->shared())
        return failure("make the place of", on, "the network is one owner's, who makes it", EINVAL);
    if (request.node == 0 || request.node > kNodeLimit || request.address != network_->address(request.node))
        return failure("make the place of", on, "there is no such number, or its address is another's",
                       EINVAL);
    if (network_->home_of(request.node) == nullptr) {
        in_addr address{};
        address.s_addr = htonl(request.address);
        std::array<char, INET_ADDRSTRLEN> text{};
        auto home = node::make_network_namespace(
            fmt::format("{}/{}", inet_ntop(AF_INET, &address, text.data(), text.size()), kPrefix),
            node::DefaultRoute::by_gateway);
        if (!home)
            return propagate(home);
        if (auto attached = network_->attach(request.node, std::move(*home)); !attached)
            return propagate(attached);
    }
    UniqueFd out(fcntl(network_->home_of(request.node)->get(), F_DUPFD_CLOEXEC, 0));
    if (!out)
        return std::unexpected(errno_error("hand out the place of", on));
    return out;
}

Expected<void> Service::attach(const AttachRequest &request, node::Descriptors &given) {
    if (given.size() != 2)
        return failure("connect", "a node", "its network and its init did not come along", EINVAL);
    UniqueFd home(given.take(0));
    UniqueFd init(given.take(1));
    const auto *const place = network_->shared() ? network_->home_of(request.node) : nullptr;
    if (place != nullptr ? !is_same(*place, home) : network_->shared())
        return failure("connect", fmt::format("node{}", request.node), "it is not at its place", EINVAL);
    if (place == nullptr)
        if (auto attached = network_->attach(request.node, std::move(home)); !attached)
            return attached;
    attached_.push_back({.node = request.node, .owner = request.owner, .init = std::move(init)});
    had_nodes_ = true;
    return {};
}

Expected<void> Service::release(const std::string &owner) {
    if (!network_->shared())
        return network_->release();
    std::vector<JobNetwork::OwnedNode> nodes;
    for (const auto &one : attached_)
        if (one.owner == owner)
            nodes.push_back({.node = one.node, .init = one.init.get()});
    return network_->release(owner, nodes);
}

std::optional<Service::Reply> Service::answer(node::Packet &packet) {
    const auto header = node::header_of(packet.bytes);
    if (!header)
        return std::nullopt;
    const auto token = header->token;
    const auto as_it_is = [token](const auto &body) {
        return Reply{.bytes = node::encode(body, token), .descriptor = {}};
    };
    const auto reply = [&](const Expected<void> &done) {
        if (!done)
            kLog.error("{}", done.error().message());
        return done ? as_it_is(Done{}) : as_it_is(failed(done.error()));
    };
    if (const auto request = node::decode<PrepareRequest>(packet.bytes)) {
        auto prepared = prepare(request->plan);
        return prepared ? as_it_is(Prepared{.mtu = network_->mtu()}) : reply(prepared);
    }
    if (node::decode<EndRequest>(packet.bytes)) {
        ended_ = true;
        network_.reset();
        return as_it_is(Done{});
    }
    if (node::decode<StatusRequest>(packet.bytes))
        return as_it_is(State{.prepared = network_.has_value(),
                              .connected = network_ && network_->connected(),
                              .cut = network_ && network_->is_cut(),
                              .nodes = network_ ? network_->nodes() : std::vector<std::uint32_t>()});
    if (!network_)
        return reply(failure("use", "the network", "it is not made yet", EAGAIN));
    if (const auto request = node::decode<ConnectRequest>(packet.bytes))
        return reply(network_->connect(request->plan));
    if (const auto request = node::decode<PlaceRequest>(packet.bytes)) {
        auto home = place(*request);
        if (!home)
            return reply(propagate(home));
        auto out = as_it_is(Done{});
        out.descriptor = std::move(*home);
        return out;
    }
    if (const auto request = node::decode<AttachRequest>(packet.bytes))
        return reply(attach(*request, packet.descriptors));
    if (const auto request = node::decode<PublishRequest>(packet.bytes)) {
        auto published = network_->publish(request->plan);
        return published ? as_it_is(PublishedPorts{.ports = std::move(*published)})
                         : reply(propagate(published));
    }
    if (const auto request = node::decode<CutRequest>(packet.bytes))
        return reply(network_->set_cut(true, request->owner));
    if (const auto request = node::decode<OpenRequest>(packet.bytes))
        return reply(network_->set_cut(false, request->owner));
    if (const auto request = node::decode<ReleaseRequest>(packet.bytes))
        return reply(release(request->owner));
    return std::nullopt;
}

} // namespace singularity::network
