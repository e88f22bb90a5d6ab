// SPDX-License-Identifier: GPL-2.0-or-later
#include "gateway.hpp"

#include "common/node_address.hpp"
#include "common/unique_fd.hpp"
#include "log.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace singularity::network {

namespace {

constexpr const char *kLoose = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose";
// Two addresses of 169.254.64.0/18 (RFC 3927) for each: nobody routes them, and clouds' 169.254.169.254 is
// not among them.
constexpr std::uint32_t kFirstLink = 169U << 24 | 254U << 16 | 64U << 8;
constexpr std::uint32_t kLinks = 8192;
constexpr std::uint32_t kLinkPrefix = 31; // RFC 3021
constexpr std::size_t kOurBytes = 6;      // of an IPv6 address: kNodeAddresses
// No node has these: mac_of() makes none of network 0.
constexpr Mac kHostEndMac{0x02, 0x53, 0, 0, 1, 1};
constexpr Mac kJobEndMac{0x02, 0x53, 0, 0, 1, 2};

// A connection that is not known here was made before a restore: its packets are answered by a reset.
constexpr const char *kJobRules =
    "add table inet way_out\n"
    "add chain inet way_out input {{ type filter hook input priority filter; policy drop; }}\n"
    "add chain inet way_out forward {{ type filter hook forward priority filter; policy drop; }}\n"
    "add chain inet way_out leave {{ type nat hook postrouting priority srcnat; policy accept; }}\n"
    "add rule inet way_out input icmp type echo-request accept\n"
    "add rule inet way_out input icmpv6 type echo-request accept\n"
    "add rule inet way_out forward ct state established,related accept\n"
    // If the kernel shows bridges' packets to these rules all the same (br_netfilter that comes later).
    "add rule inet way_out forward iifname \"{0}\" oifname \"{0}\" accept\n"
    "add rule inet way_out forward iifname != \"{0}\" drop\n"
    "add rule inet way_out forward meta l4proto tcp ct state invalid reject with tcp reset\n"
    "add rule inet way_out forward ct state new ct count over {3} counter reject with icmpx "
    "admin-prohibited\n"
    // Addresses of jobs, and those that are IPv4's.
    "add rule inet way_out forward ip6 daddr {{ {4}, ::/96, ::ffff:0:0/96 }} reject with icmpv6 no-route\n"
    "{2}"
    "add rule inet way_out forward reject with icmpx admin-prohibited\n"
    "add rule inet way_out leave oifname \"{1}\" masquerade\n";

// {0} is the host's end, {1} all such, {2} the job's address, {3} the agents' port, {4} VXLAN's, which the
// firewall closes, {5} the job's address of IPv6. NAT makes the kernel keep track of all of the host's
// connections; what ranks say to each other is spared that.
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
    "add rule inet {0} leave ip saddr {2} oifname != \"{0}\" masquerade\n"
    "add rule inet {0} leave ip6 saddr {5} oifname != \"{0}\" masquerade\n";

std::string text_of(const in6_addr &address) {
    std::array<char, INET6_ADDRSTRLEN> out{};
    return inet_ntop(AF_INET6, &address, out.data(), out.size());
}

in6_addr address6_of(const OutsideTarget &target) {
    in6_addr out{};
    for (unsigned byte = 0; byte < 8; ++byte) {
        out.s6_addr[byte] = static_cast<std::uint8_t>(target.high >> (56 - 8 * byte));
        out.s6_addr[8 + byte] = static_cast<std::uint8_t>(target.low >> (56 - 8 * byte));
    }
    return out;
}

std::string rules_for(const Outside &outside) {
    constexpr const char *kForward = "add rule inet way_out forward";
    if (outside.everywhere)
        return fmt::format("{} accept\n", kForward);
    std::string out;
    for (const auto &target : outside.only) {
        const auto to =
            target.ipv6
                ? fmt::format("{} ip6 daddr {}/{}", kForward, text_of(address6_of(target)), target.prefix)
                : fmt::format("{} ip daddr {}/{}", kForward, dotted(target.address), target.prefix);
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

// As for IPv4. All addresses are known on both sides: nobody is asked, so nothing has link-local addresses
// and none waits for them.
Expected<void> lead_ipv6(const Prepare &plan, const Gateway::Place &place, const Pair &pair) {
    Links &host = *place.host;
    Links &own = *place.own;
    const auto host_address = ipv6_of(pair.host_address);
    const auto job_address = ipv6_of(pair.job_address);
    const auto setting = [](std::string_view interface, std::string_view name) {
        return fmt::format("/proc/sys/net/ipv6/conf/{}/{}", interface, name);
    };
    // A refusal is to be heard however many there are; these are of the job's own network alone.
    if (auto set = write_setting("/proc/sys/net/ipv6/icmp/ratelimit", "0"); !set)
        return set;
    if (auto set = write_setting(setting("all", "forwarding"), "1"); !set)
        return set;
    for (const char *const interface : {place.bridge.c_str(), kJobEnd}) {
        if (auto set = write_setting(setting(interface, "addr_gen_mode"), "1"); !set)
            return set;
        if (auto set = write_setting(setting(interface, "disable_ipv6"), "0"); !set)
            return set;
    }
    const auto prefix = kLinkPrefix + kNodePrefix;
    for (const auto &step : {
             std::function([&] {
                 return own.add_address(place.bridge, ipv6_of(network_of(plan.vni) | kGateway), 128);
             }),
             std::function([&] { return host.add_address(pair.host_end, host_address, prefix); }),
             std::function([&] { return host.add_neighbour(pair.host_end, job_address, kJobEndMac); }),
             std::function([&] { return own.add_address(kJobEnd, job_address, prefix); }),
             std::function([&] { return own.add_neighbour(kJobEnd, host_address, kHostEndMac); }),
             std::function([&] {
                 return own.add_route(kJobEnd, {.to = in6_addr{}, .prefix = 0, .gateway = host_address});
             }),
         })
        if (auto done = step(); !done)
            return done;
    return {};
}

} // namespace

bool host_has_ipv6() {
    ifaddrs *found = nullptr;
    if (getifaddrs(&found) != 0)
        return false;
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs *)> list(found, freeifaddrs);
    const auto ours = ipv6_of(0);
    for (const ifaddrs *one = found; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET6)
            continue;
        sockaddr_in6 address{};
        std::memcpy(&address, one->ifa_addr, sizeof(address));
        const auto &ip = address.sin6_addr;
        if (!IN6_IS_ADDR_LOOPBACK(&ip) && !IN6_IS_ADDR_LINKLOCAL(&ip) &&
            std::memcmp(&ip, &ours, kOurBytes) != 0)
            return true;
    }
    return false;
}

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
    auto set =
        rules->run(fmt::format(kJobRules, "bridge", kJobEnd, rules_for({.everywhere = true, .only = {}}),
                               kConnections, kNodeAddresses));
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
    constexpr Links::Change kHostUp{.mtu = {}, .mac = kHostEndMac, .bridge = {}, .up = true};
    constexpr Links::Change kJobUp{.mtu = {}, .mac = kJobEndMac, .bridge = {}, .up = true};
    const Links::Change bridge{.mtu = {}, .mac = kGatewayMac, .bridge = {}, .up = true};
    const auto host_rules = fmt::format(kHostEndRules, pair->host_end, kHostEnd, dotted(pair->job_address),
                                        plan.way_out.agents, plan.port, text_of(ipv6_of(pair->job_address)));
    // Rules before ways.
    for (const auto &step : {
             std::function(spare_bridge),
             std::function([&] {
                 return rules->run(fmt::format(kJobRules, place.bridge, kJobEnd,
                                               rules_for(plan.way_out.outside), kConnections,
                                               kNodeAddresses));
             }),
             std::function([&] { return place.host_rules.run(host_rules); }),
             std::function([&] { return write_setting(kLoose, "0"); }),
             std::function([&] { return write_setting("/proc/sys/net/ipv4/ip_forward", "1"); }),
             std::function([&] { return own.change(place.bridge, bridge); }),
             std::function(
                 [&] { return own.add_address(place.bridge, network_of(plan.vni) | kGateway, 32); }),
             std::function([&] { return host.add_address(pair->host_end, pair->host_address, kLinkPrefix); }),
             std::function([&] { return host.change(pair->host_end, kHostUp); }),
             std::function([&] { return own.add_address(kJobEnd, pair->job_address, kLinkPrefix); }),
             std::function([&] { return own.change(kJobEnd, kJobUp); }),
             std::function([&] {
                 return own.add_route(kJobEnd, {.to = {}, .prefix = 0, .gateway = pair->host_address});
             }),
         })
        if (auto done = step(); !done)
            return propagate(done);
    bool ipv6 = false;
    if (plan.way_out.outside.open_to_ipv6() && place.host_ipv6) {
        auto led = lead_ipv6(plan, place, *pair);
        if (!led) // the job can do without
            kLog.error("{}: the job's programs reach nothing over IPv6", led.error().message());
        ipv6 = led.has_value();
    }
    return Gateway(std::move(place.host_rules), pair->host_end, pair->job_address, ipv6);
}

} // namespace singularity::network
