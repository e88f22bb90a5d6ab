// SPDX-License-Identifier: GPL-2.0-or-later
#include "gateway.hpp"

#include "common/unique_fd.hpp"

#include <cerrno>
#include <functional>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity::network {

namespace {

constexpr const char *kLoose = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose";
// Two addresses of 169.254.64.0/18 (RFC 3927) for each: nobody routes them, and clouds' 169.254.169.254 is
// not among them.
constexpr std::uint32_t kFirstLink = 169U << 24 | 254U << 16 | 64U << 8;
constexpr std::uint32_t kLinks = 8192;
constexpr std::uint32_t kLinkPrefix = 31; // RFC 3021

// A connection that is not known here was made before a restore: its packets are answered by a reset.
constexpr const char *kJobRules =
    "add table inet way_out\n"
    "add chain inet way_out input {{ type filter hook input priority filter; policy drop; }}\n"
    "add chain inet way_out forward {{ type filter hook forward priority filter; policy drop; }}\n"
    "add chain inet way_out leave {{ type nat hook postrouting priority srcnat; policy accept; }}\n"
    "add rule inet way_out input icmp type echo-request accept\n"
    "add rule inet way_out forward ct state established,related accept\n"
    // If the kernel shows bridges' packets to these rules all the same (br_netfilter that comes later).
    "add rule inet way_out forward iifname \"{0}\" oifname \"{0}\" accept\n"
    "add rule inet way_out forward iifname != \"{0}\" drop\n"
    "add rule inet way_out forward meta l4proto tcp ct state invalid reject with tcp reset\n"
    "add rule inet way_out forward ct state new ct count over {3} counter reject with icmpx "
    "admin-prohibited\n"
    "{2}"
    "add rule inet way_out forward reject with icmpx admin-prohibited\n"
    "add rule inet way_out leave oifname \"{1}\" masquerade\n";

// {0} is the host's end, {1} all such, {2} the job's address, {3} the agents' port, {4} VXLAN's, which the
// firewall closes. NAT makes the kernel keep track of all of the host's connections; what ranks say to each
// other is spared that.
constexpr const char *kHostEndRules =
    "add table inet {0} {{ flags owner; }}\n"
    "add chain inet {0} input {{ type filter hook input priority filter; policy accept; }}\n"
    "add chain inet {0} forward {{ type filter hook forward priority filter; policy accept; }}\n"
    "add chain inet {0} leave {{ type nat hook postrouting priority srcnat; policy accept; }}\n"
    "add chain inet {0} arrive {{ type filter hook prerouting priority raw; policy accept; }}\n"
    "add chain inet {0} depart {{ type filter hook output priority raw; policy accept; }}\n"
    "add rule inet {0} arrive udp dport {4} notrack\n"
    "add rule inet {0} depart udp dport {4} notrack\n"
    "add rule inet {0} input iifname \"{0}\" tcp dport {3} counter reject with tcp reset\n"
    "add rule inet {0} forward iifname \"{0}\" tcp dport {3} counter reject with tcp reset\n"
    // What another job has published (way_in), and nothing else of it.
    "add rule inet {0} forward iifname \"{0}\" oifname \"{1}*\" ct status dnat accept\n"
    "add rule inet {0} forward iifname \"{0}\" oifname \"{1}*\" counter drop\n"
    "add rule inet {0} forward oifname \"{0}\" ct state != {{ established, related }} counter drop\n"
    "add rule inet {0} leave ip saddr {2} oifname != \"{0}\" masquerade\n";

std::string rules_for(const Outside &outside) {
    constexpr const char *kForward = "add rule inet way_out forward";
    if (outside.everywhere)
        return fmt::format("{} accept\n", kForward);
    std::string out;
    for (const auto &target : outside.only) {
        const auto to = fmt::format("{} ip daddr {}/{}", kForward, dotted(target.address), target.prefix);
        if (target.port == 0)
            out += to + " accept\n";
        else
            out += fmt::format("{0} tcp dport {1} accept\n{0} udp dport {1} accept\n", to, target.port);
    }
    return out;
}

// With br_netfilter the rules, and the tracking of connections, are for what only passes the bridge as well:
// ranks would pay for the way out. ENOENT: the kernel has no br_netfilter.
Expected<void> spare_bridge() {
    for (const char *const tables : {"iptables", "ip6tables", "arptables"}) {
        auto set = write_setting(fmt::format("/proc/sys/net/bridge/bridge-nf-call-{}", tables), "0");
        if (!set && set.error().code != ENOENT)
            return set;
    }
    return {};
}

struct Pair {
    std::string host_end;
    std::uint32_t host_address = 0;
    std::uint32_t job_address = 0;
};

// The first number that no other network of this host has.
Expected<Pair> make_pair(Links &own, int host_home) {
    for (std::uint32_t number = 0; number < kLinks; ++number) {
        Pair out{.host_end = fmt::format("{}{}", kHostEnd, number),
                 .host_address = kFirstLink + 2 * number,
                 .job_address = kFirstLink + 2 * number + 1};
        auto made = own.make_pair(kJobEnd, out.host_end, host_home);
        if (made)
            return out;
        if (made.error().code != EEXIST)
            return propagate(made);
    }
    return failure("make", "a job's way out", fmt::format("this host has {} already", kLinks), EUSERS);
}

} // namespace

std::string dotted(std::uint32_t address) {
    return fmt::format("{}.{}.{}.{}", address >> 24, address >> 16 & 0xff, address >> 8 & 0xff,
                       address & 0xff);
}

Expected<void> write_setting(const std::string &path, const std::string &value) {
    auto file = open_file(path, O_WRONLY);
    if (!file)
        return propagate(file);
    if (write(file->get(), value.data(), value.size()) != static_cast<ssize_t>(value.size()))
        return std::unexpected(errno_error("write", path));
    return {};
}

Expected<void> try_way_out() {
    auto rules = Nft::open();
    if (!rules)
        return propagate(rules);
    auto set = rules->run(
        fmt::format(kJobRules, "bridge", kJobEnd, rules_for({.everywhere = true, .only = {}}), kConnections));
    return set ? write_setting(kLoose, "0") : set;
}

Expected<Gateway> Gateway::make(const Prepare &plan, Place place) {
    Links &host = *place.host;
    Links &own = *place.own;
    auto pair = make_pair(own, place.host_home);
    if (!pair)
        return propagate(pair);
    auto rules = Nft::open();
    if (!rules)
        return propagate(rules);
    constexpr Links::Change kUp{.mtu = {}, .mac = {}, .bridge = {}, .up = true};
    const Links::Change bridge{.mtu = {}, .mac = kGatewayMac, .bridge = {}, .up = true};
    const auto host_rules = fmt::format(kHostEndRules, pair->host_end, kHostEnd, dotted(pair->job_address),
                                        plan.way_out.agents, plan.port);
    // Rules before ways.
    for (const auto &step : {
             std::function(spare_bridge),
             std::function([&] {
                 return rules->run(fmt::format(kJobRules, place.bridge, kJobEnd,
                                               rules_for(plan.way_out.outside), kConnections));
             }),
             std::function([&] { return place.host_rules.run(host_rules); }),
             std::function([&] { return write_setting(kLoose, "0"); }),
             std::function([&] { return write_setting("/proc/sys/net/ipv4/ip_forward", "1"); }),
             std::function([&] { return own.change(place.bridge, bridge); }),
             std::function(
                 [&] { return own.add_address(place.bridge, network_of(plan.vni) | kGateway, 32); }),
             std::function([&] { return host.add_address(pair->host_end, pair->host_address, kLinkPrefix); }),
             std::function([&] { return host.change(pair->host_end, kUp); }),
             std::function([&] { return own.add_address(kJobEnd, pair->job_address, kLinkPrefix); }),
             std::function([&] { return own.change(kJobEnd, kUp); }),
             std::function([&] {
                 return own.add_route(kJobEnd, {.to = 0, .prefix = 0, .gateway = pair->host_address});
             }),
         })
        if (auto done = step(); !done)
            return propagate(done);
    return Gateway(std::move(place.host_rules), pair->host_end, pair->job_address);
}

} // namespace singularity::network
