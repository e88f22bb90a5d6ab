// SPDX-License-Identifier: GPL-2.0-or-later
#include "restored_network.hpp"

#include "common/name_space.hpp"
#include "criu-hooks/host/connections.hpp"
#include "host_node.hpp"
#include "node/network.hpp"

#include <bit>
#include <set>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

namespace singularity::worker {

namespace {

Expected<NameSpaceVisit> visit(const UniqueFd &home) {
    auto there = NameSpace::open(fmt::format("/proc/self/fd/{}", home.get()), NameSpaceKind::kNetwork);
    return there ? NameSpaceVisit::to(*there) : propagate(there);
}

Expected<network::OwnNetwork> own_network_of(const node::Spec &spec) {
    auto own = node::parse_address(spec.address);
    if (!own)
        return propagate(own);
    return network::OwnNetwork{.address = ntohl(own->address),
                               .prefix = static_cast<std::uint32_t>(std::popcount(own->mask))};
}

network::Connection connection_of(const host::SavedConnection &saved) {
    return {.own = saved.own, .peer = saved.peer, .own_port = saved.own_port, .peer_port = saved.peer_port};
}

} // namespace

Expected<RestoredNetwork> RestoredNetwork::make(const node::Spec &spec) {
    const bool way_out = has_way_out(spec);
    auto home = node::make_network_namespace(spec.address, way_out ? node::DefaultRoute::by_gateway
                                                                   : node::DefaultRoute::no);
    if (!home)
        return propagate(home);
    RestoredNetwork out(std::move(*home));
    if (!way_out)
        return out;
    auto own = own_network_of(spec);
    if (!own)
        return propagate(own);
    auto there = visit(out.home_);
    if (!there)
        return propagate(there);
    auto lost = network::LostConnections::expect(*own);
    if (!lost)
        return propagate(lost);
    out.lost_ = std::move(*lost);
    return out;
}

Expected<RestoredNetwork> RestoredNetwork::join(const node::Spec &spec, UniqueFd home,
                                                const store::Checkpoint &checkpoint, int images) {
    auto own = own_network_of(spec);
    if (!own)
        return propagate(own);
    auto connections = host::saved_connections(images);
    if (!connections)
        return propagate(connections);
    auto all = host::saved_connections_of_others(checkpoint, spec.name, images);
    if (!all)
        return propagate(all);
    all->insert(all->end(), connections->begin(), connections->end());
    std::set<network::Connection> ends;
    for (const auto &one : *all)
        if (one.protocol == IPPROTO_TCP)
            ends.insert(connection_of(one));
    network::Brought brought;
    for (const auto &one : *connections) {
        const auto connection = connection_of(one);
        if (one.protocol == IPPROTO_UDP)
            brought.datagrams.insert(connection);
        else if (!ends.contains({.own = connection.peer,
                                 .peer = connection.own,
                                 .own_port = connection.peer_port,
                                 .peer_port = connection.own_port}))
            brought.streams.insert(connection);
    }
    RestoredNetwork out(std::move(home));
    auto there = visit(out.home_);
    if (!there)
        return propagate(there);
    auto lost = network::LostConnections::expect(*own, std::move(brought));
    if (!lost)
        return propagate(lost);
    out.lost_ = std::move(*lost);
    return out;
}

Expected<void> RestoredNetwork::end_lost_connections() const {
    if (!lost_)
        return {};
    auto there = visit(home_);
    return there ? lost_->done() : propagate(there);
}

} // namespace singularity::worker
