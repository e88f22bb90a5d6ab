// SPDX-License-Identifier: GPL-2.0-or-later
#include "plan.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace singularity::network {

namespace {

Expected<void> refuse(std::uint32_t vni, std::string why) {
    return failure("make", fmt::format("the network {} of a job", vni), std::move(why), EINVAL);
}

// Not 0.0.0.0/8, not multicast or above.
bool is_host_address(std::uint32_t address) { return address >> 24 != 0 && address >> 24 < 224; }

} // namespace

// Of 10.64.0.0/10, which is hardly ever a cluster's own; nobody outside of the network sees it.
std::uint32_t network_of(std::uint32_t vni) {
    return 10U << 24 | (64U + (vni >> 8 & 0x3f)) << 16 | (vni & 0xff) << 8;
}

std::uint32_t with_addresses_of(std::uint32_t job, std::uint32_t which) {
    return (which % kNetworksOfAddress * kAddressesOfJobs) + (job % kAddressesOfJobs);
}

std::uint32_t address_of(std::uint32_t vni, std::uint32_t node) { return network_of(vni) | node; }

Mac mac_of(std::uint32_t vni, std::uint32_t node) {
    // The second lowest bit of the first byte: administered locally (IEEE 802).
    return {0x02,
            0x53,
            static_cast<std::uint8_t>(vni >> 16),
            static_cast<std::uint8_t>(vni >> 8),
            static_cast<std::uint8_t>(vni),
            static_cast<std::uint8_t>(node)};
}

Expected<void> check(const Prepare &plan) {
    if (plan.vni == 0 || plan.vni >= kVniLimit)
        return refuse(plan.vni, fmt::format("expected a number from 1 to {}", kVniLimit - 1));
    if (plan.port == 0)
        return refuse(plan.vni, "it has no UDP port");
    if (plan.hosts.size() > kHostLimit)
        return refuse(plan.vni, fmt::format("{} hosts; at most {}", plan.hosts.size(), kHostLimit));
    if (!plan.hosts.empty() && !is_host_address(plan.local))
        return refuse(plan.vni, "the address of this host is none");
    const auto &targets = plan.way_out.outside.only;
    if (targets.size() > kOutsideTargets ||
        std::ranges::any_of(targets, [](const OutsideTarget &target) { return target.prefix > 32; }))
        return refuse(plan.vni,
                      fmt::format("of what it may reach outside there are at most {} networks, with "
                                  "prefixes of at most 32 bits",
                                  kOutsideTargets));
    std::set<std::uint32_t> seen{plan.local};
    for (const auto host : plan.hosts)
        if (!is_host_address(host) || !seen.insert(host).second)
            return refuse(plan.vni, "two of its hosts have one address, or one has none");
    return {};
}

Expected<void> check(const Connect &plan, const Prepare &before) {
    if (plan.mtu < kLeastMtu || plan.mtu > kMostMtu)
        return refuse(before.vni,
                      fmt::format("an MTU of {}: expected {} to {}", plan.mtu, kLeastMtu, kMostMtu));
    std::set<std::uint32_t> seen;
    for (const auto &remote : plan.remotes) {
        if (remote.node == 0 || remote.node > kNodeLimit || !seen.insert(remote.node).second)
            return refuse(before.vni, fmt::format("node {} is none, or there twice", remote.node));
        if (std::ranges::find(before.hosts, remote.host) == before.hosts.end())
            return refuse(before.vni, fmt::format("node {} is on a host that is not the job's", remote.node));
    }
    return {};
}

} // namespace singularity::network
