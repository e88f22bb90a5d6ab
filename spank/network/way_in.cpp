// SPDX-License-Identifier: GPL-2.0-or-later
#include "way_in.hpp"

#include "gateway.hpp"

#include <cerrno>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h> // join, since fmt 11
#include <netinet/in.h>
#include <sys/socket.h>

namespace singularity::network {

namespace {

// {0} is the host's end, {1} the job's address. Whoever is on the host itself comes by `output`. 127.0.0.0/8
// stays the host's own: its packets would have to leave the loopback, which the kernel does not allow.
constexpr const char *kHostWayIn =
    "add set inet {0} published {{ type inet_service; }}\n"
    "add chain inet {0} come {{ type nat hook prerouting priority dstnat; policy accept; }}\n"
    "add chain inet {0} come_from_here {{ type nat hook output priority -100; policy accept; }}\n"
    "add rule inet {0} come ip daddr != 127.0.0.0/8 fib daddr type local tcp dport @published dnat ip to "
    "{1}\n"
    "add rule inet {0} come_from_here ip daddr != 127.0.0.0/8 fib daddr type local tcp dport @published "
    "dnat ip to {1}\n"
    "insert rule inet {0} forward oifname \"{0}\" ip daddr {1} ct status dnat accept\n"
    // A node that asks for its own job by the host's address would be answered past the host.
    "add rule inet {0} leave ip saddr {1} oifname \"{0}\" masquerade\n";

// {0} is the job's end, {1} its address, {2} the most connections. Before what drops all that is new from
// outside; the later one of `insert` comes first.
constexpr const char *kJobWayIn =
    "add map inet way_out published {{ type inet_service : ipv4_addr . inet_service; }}\n"
    "add chain inet way_out come {{ type nat hook prerouting priority dstnat; policy accept; }}\n"
    "add rule inet way_out come iifname \"{0}\" ip daddr {1} dnat ip to tcp dport map @published\n"
    "insert rule inet way_out forward iifname \"{0}\" ct status dnat accept\n"
    "insert rule inet way_out forward iifname \"{0}\" ct state new ct status dnat ct count over {2} counter "
    "drop\n";

Expected<UniqueFd> bound_to(std::uint16_t port) {
    UniqueFd out(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    if (!out || bind(out.get(), reinterpret_cast<const sockaddr *>(&at), sizeof(at)) != 0)
        return std::unexpected(errno_error("take the host's", fmt::format("port {}", port)));
    return out;
}

} // namespace

Expected<void> try_way_in() {
    auto rules = Nft::open();
    if (!rules)
        return propagate(rules);
    constexpr const char *kTables =
        "add table inet {0}\n"
        "add chain inet {0} forward {{ type filter hook forward priority filter; }}\n"
        "add chain inet {0} leave {{ type nat hook postrouting priority srcnat; }}\n"
        "add table inet way_out\n"
        "add chain inet way_out forward {{ type filter hook forward priority filter; }}\n";
    const auto job = dotted(INADDR_LOOPBACK); // nobody is there
    return rules->run(fmt::format(kTables, kHostEnd) + fmt::format(kHostWayIn, kHostEnd, job) +
                      fmt::format(kJobWayIn, kJobEnd, job, kConnections));
}

Expected<WayIn> WayIn::make(Place place) {
    auto own_rules = Nft::open();
    if (!own_rules)
        return propagate(own_rules);
    const auto job = dotted(place.job_address);
    // What is sent on has its way before anything is.
    if (auto made = own_rules->run(fmt::format(kJobWayIn, kJobEnd, job, kConnections)); !made)
        return propagate(made);
    if (auto made = place.host_rules->run(fmt::format(kHostWayIn, place.host_end, job)); !made)
        return propagate(made);
    return WayIn(std::move(place), std::move(*own_rules));
}

Expected<WayIn::Open> WayIn::reserve(const Publish &plan, std::uint32_t address, std::uint16_t port) const {
    auto visit = NameSpaceVisit::to(*place_.host_home);
    if (!visit)
        return propagate(visit);
    const auto &range = plan.range;
    const std::uint32_t size = range.last - range.first + 1U;
    const std::uint32_t first = first_choice(range, address, port) - range.first;
    for (std::uint32_t tried = 0; tried < size; ++tried) {
        const auto at = static_cast<std::uint16_t>(range.first + (first + tried) % size);
        auto socket = bound_to(at);
        if (socket)
            return Open{.socket = std::move(*socket), .ports = {.port = port, .at = at}};
        if (socket.error().code != EADDRINUSE)
            return propagate(socket);
    }
    return failure(
        "publish", fmt::format("port {}", port),
        fmt::format("none of the host's ports {} to {} is free (network.publish in singularity.yaml)",
                    range.first, range.last),
        ENOSPC);
}

Expected<std::vector<Published>> WayIn::publish(const Publish &plan, std::uint32_t address) {
    if (auto checked = check(plan); !checked)
        return propagate(checked);
    if (open_.contains({plan.node, plan.owner}))
        return failure("publish", fmt::format("ports of node {}", plan.node), "that is done already", EEXIST);
    std::vector<Open> taken;
    std::vector<Published> out;
    std::vector<std::string> ports;
    std::vector<std::string> ways;
    for (const auto port : plan.ports) {
        auto one = reserve(plan, address, port);
        if (!one)
            return propagate(one);
        out.push_back(one->ports);
        ports.push_back(std::to_string(one->ports.at));
        ways.push_back(fmt::format("{} : {} . {}", one->ports.at, dotted(address), port));
        taken.push_back(std::move(*one));
    }
    // Kept from here on: what could not be undone must not become free.
    open_.emplace(std::pair(plan.node, plan.owner), std::move(taken));
    auto led =
        own_rules_.run(fmt::format("add element inet way_out published {{ {} }}\n", fmt::join(ways, ", ")));
    if (led)
        led = place_.host_rules->run(
            fmt::format("add element inet {} published {{ {} }}\n", place_.host_end, fmt::join(ports, ", ")));
    if (!led)
        return propagate(led);
    return out;
}

Expected<void> WayIn::close(std::uint32_t node, const std::string &owner) {
    const auto found = open_.find({node, owner});
    if (found == open_.end())
        return {};
    std::string elements;
    for (const auto &one : found->second)
        elements += fmt::format("{}{}", elements.empty() ? "" : ", ", one.ports.at);
    if (auto closed = place_.host_rules->run(
            fmt::format("delete element inet {} published {{ {} }}\n", place_.host_end, elements));
        !closed)
        return closed;
    if (auto closed =
            own_rules_.run(fmt::format("delete element inet way_out published {{ {} }}\n", elements));
        !closed)
        return closed;
    open_.erase(found);
    return {};
}

Expected<void> WayIn::close_all() {
    Expected<void> out;
    while (!open_.empty() && out)
        out = close(open_.begin()->first.first, open_.begin()->first.second);
    return out;
}

} // namespace singularity::network
