// SPDX-License-Identifier: GPL-2.0-or-later
#include "firewall.hpp"

#include "common/proc.hpp"
#include "gateway.hpp"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

namespace singularity::network {

namespace {

// Before connection tracking and everybody else's rules. A packet of the kernel's own, VXLAN's, has no owner
// here: skuid does not match it.
constexpr const char *kHostRules =
    "add table inet singularity\n"
    "add set inet singularity ports {{ type inet_service; }}\n"
    "add chain inet singularity output {{ type filter hook output priority raw; policy accept; }}\n"
    "add chain inet singularity forward {{ type filter hook forward priority raw; policy accept; }}\n"
    "flush chain inet singularity output\n"
    "flush chain inet singularity forward\n"
    "add element inet singularity ports {{ {0} }}\n"
    "add rule inet singularity output udp dport @ports meta skuid != 0 counter drop\n"
    "add rule inet singularity forward udp dport @ports counter drop\n";

// The network's number is in bits 96 to 119 behind the beginning of the UDP header (RFC 7348).
constexpr const char *kNetworkRules =
    "add table inet {0} {{ flags owner; }}\n"
    "add set inet {0} hosts {{ type ipv4_addr; }}\n"
    "add chain inet {0} output {{ type filter hook output priority raw; policy accept; }}\n"
    "add chain inet {0} forward {{ type filter hook forward priority raw; policy accept; }}\n"
    "add chain inet {0} input {{ type filter hook input priority raw; policy accept; }}\n"
    "add rule inet {0} output udp dport {1} meta skuid != 0 counter drop\n"
    "add rule inet {0} forward udp dport {1} counter drop\n"
    "add rule inet {0} input meta nfproto ipv6 udp dport {1} @th,96,24 {2} counter drop\n"
    "add rule inet {0} input ip saddr != @hosts udp dport {1} @th,96,24 {2} counter drop\n";

// What the host did not forward before jobs needed it to is not forwarded now.
constexpr const char *kTransitRules =
    "add table inet singularity\n"
    "add chain inet singularity transit {{ type filter hook forward priority filter; policy accept; }}\n"
    "flush chain inet singularity transit\n"
    "add rule inet singularity transit meta nfproto ipv4 iifname != \"{0}*\" oifname != \"{0}*\" counter "
    "drop\n";

constexpr const char *kTransit6Rules =
    "add table inet singularity\n"
    "add chain inet singularity transit6 {{ type filter hook forward priority filter; policy accept; }}\n"
    "flush chain inet singularity transit6\n"
    "add rule inet singularity transit6 meta nfproto ipv6 iifname != \"{0}*\" oifname != \"{0}*\" counter "
    "drop\n";

constexpr const char *kInterfaces6 = "/proc/sys/net/ipv6/conf";
constexpr const char *kForwards = "/proc/sys/net/ipv4/ip_forward";
constexpr const char *kForwards6 = "/proc/sys/net/ipv6/conf/all/forwarding";

// A host that forwards believes no router, and forgets its routes, but where this is 2.
Expected<void> go_on_believing_routers() {
    std::error_code error;
    for (const auto &one : std::filesystem::directory_iterator(kInterfaces6, error)) {
        const auto path = one.path() / "accept_ra";
        auto now = proc::read(path);
        if (!now) {
            if (now.error().code == ENOENT) // the interface has just gone
                continue;
            return propagate(now);
        }
        if (now->starts_with('1'))
            if (auto set = write_setting(path, "2"); !set)
                return set;
    }
    if (error)
        return failure("list", kInterfaces6, error.message(), error.value());
    return {};
}

} // namespace

Expected<void> close_port(std::uint16_t port) {
    auto nft = Nft::open();
    return nft ? nft->run(fmt::format(kHostRules, port)) : propagate(nft);
}

Expected<void> forward_for_jobs() {
    auto now = proc::read(kForwards);
    if (!now)
        return propagate(now);
    if (!now->starts_with('0'))
        return {};
    auto nft = Nft::open();
    if (!nft)
        return propagate(nft);
    // First: nothing passes in between.
    if (auto guarded = nft->run(fmt::format(kTransitRules, kHostEnd)); !guarded)
        return guarded;
    return write_setting(kForwards, "1");
}

bool forwards_ipv6() {
    const auto now = proc::read(kForwards6);
    return now && !now->starts_with('0');
}

Expected<void> forward_ipv6_for_jobs() {
    if (access(kForwards6, F_OK) != 0 || forwards_ipv6()) // a kernel without IPv6, or a router
        return {};
    auto nft = Nft::open();
    if (!nft)
        return propagate(nft);
    if (auto guarded = nft->run(fmt::format(kTransit6Rules, kHostEnd)); !guarded)
        return guarded;
    if (auto believes = go_on_believing_routers(); !believes)
        return believes;
    return write_setting(kForwards6, "1");
}

Expected<Firewall> Firewall::make(const Prepare &plan) {
    auto nft = Nft::open();
    if (!nft)
        return propagate(nft);
    auto table = fmt::format("singularity_{}_{}", plan.port, plan.vni);
    if (auto made = nft->run(fmt::format(kNetworkRules, table, plan.port, plan.vni)); !made)
        return propagate(made);
    return Firewall(std::move(*nft), std::move(table));
}

Expected<void> Firewall::admit(const std::vector<std::uint32_t> &hosts) const {
    std::string commands;
    for (const auto host : hosts)
        commands += fmt::format("add element inet {} hosts {{ {}.{}.{}.{} }}\n", table_, host >> 24,
                                host >> 16 & 0xff, host >> 8 & 0xff, host & 0xff);
    return commands.empty() ? Expected<void>() : nft_.run(commands);
}

} // namespace singularity::network
