// SPDX-License-Identifier: GPL-2.0-or-later
#include "restored_network.hpp"

#include "common/name_space.hpp"
#include "host_node.hpp"
#include "node/network.hpp"

#include <bit>

#include <arpa/inet.h>
#include <fmt/format.h>

namespace singularity::worker {

namespace {

Expected<NameSpaceVisit> visit(const UniqueFd &home) {
    auto there = NameSpace::open(fmt::format("/proc/self/fd/{}", home.get()), NameSpaceKind::kNetwork);
    return there ? NameSpaceVisit::to(*there) : propagate(there);
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
    auto own = node::parse_address(spec.address);
    if (!own)
        return propagate(own);
    auto there = visit(out.home_);
    if (!there)
        return propagate(there);
    auto lost = network::LostConnections::expect(
        {.address = ntohl(own->address), .prefix = static_cast<std::uint32_t>(std::popcount(own->mask))});
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
