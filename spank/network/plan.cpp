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

std::uint16_t first_choice(const PortRange &range, std::uint32_t address, std::uint16_t port) {
    // Multiplicative hashing (Knuth): neighbours are not neighbours in the range.
    constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
    constexpr unsigned kUpper = 32; // bits
    const std::uint64_t key = std::uint64_t{address} << 16 | port;
    const std::uint64_t size = range.last - range.first + 1U;
    return static_cast<std::uint16_t>(range.first + (((key * kGolden) >> kUpper) % size));
}

Expected<void> check(const Publish &plan) {
    const auto refuse_ports = [&](std::string why) {
        return failure("publish", fmt::format("ports of node {}", plan.node), std::move(why), EINVAL);
    };
    if (plan.ports.empty() || plan.ports.size() > kPublishedLimit)
        return refuse_ports(fmt::format("{} ports; expected 1 to {}", plan.ports.size(), kPublishedLimit));
    if (!plan.range.any() || plan.range.first < kLeastPublished || plan.range.first > plan.range.last)
        return refuse_ports(
            fmt::format("the host has no ports {} to {} for that", plan.range.first, plan.range.last));
    std::set<std::uint16_t> seen;
    for (const auto port : plan.ports)
        if (port == 0 || !seen.insert(port).second)
            return refuse_ports(fmt::format("{} is no port, or there twice", port));
    return {};
}

Expected<void> check(const Prepare &plan) {
    if (plan.vni == 0 || plan.vni >= kVniLimit)
        return refuse(plan.vni, fmt::format("expected a number from 1 to {}", kVniLimit - 1));
    if (plan.port == 0)
        return refuse(plan.vni, "it has no UDP port");
    if (plan.shared && !plan.hosts.empty())
        return refuse(plan.vni, "a network that several share has one host");
    if (plan.hosts.size() > kHostLimit)
        return refuse(plan.vni, fmt::format("{} hosts; at most {}", plan.hosts.size(), kHostLimit));
    if (!plan.hosts.empty() && !is_host_address(plan.local))
        return refuse(plan.vni, "the address of this host is none");
    const auto &targets = plan.way_out.outside.only;
    if (targets.size() > kOutsideTargets || std::ranges::any_of(targets, [](const OutsideTarget &target) {
            return target.prefix > (target.ipv6 ? 128U : 32U);
        }))
        return refuse(plan.vni,
                      fmt::format("of what it may reach outside there are at most {} networks, with "
                                  "prefixes of at most 32 bits, or 128 of IPv6",
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
