// SPDX-License-Identifier: GPL-2.0-or-later
#include "firewall.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nftables/libnftables.h>

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

} // namespace

void Firewall::Free::operator()(nft_ctx *context) const { nft_ctx_free(context); }

Expected<Firewall::Context> Firewall::open() {
    Context context(nft_ctx_new(NFT_CTX_DEFAULT));
    if (!context || nft_ctx_buffer_error(context.get()) != 0 || nft_ctx_buffer_output(context.get()) != 0)
        return failure("use", "nftables", "there is no memory", ENOMEM);
    return context;
}

Expected<void> Firewall::run(const Context &context, const std::string &commands) {
    if (nft_run_cmd_from_buffer(context.get(), commands.c_str()) == 0)
        return {};
    std::string why = nft_ctx_get_error_buffer(context.get());
    std::ranges::replace(why, '\n', ' ');
    return failure("set", "nftables", fmt::format("{} (does the kernel have nf_tables?)", why), EIO);
}

Expected<void> close_port(std::uint16_t port) {
    auto context = Firewall::open();
    if (!context)
        return propagate(context);
    return Firewall::run(*context, fmt::format(kHostRules, port));
}

Expected<Firewall> Firewall::make(const Prepare &plan) {
    auto context = open();
    if (!context)
        return propagate(context);
    auto table = fmt::format("singularity_{}_{}", plan.port, plan.vni);
    if (auto made = run(*context, fmt::format(kNetworkRules, table, plan.port, plan.vni)); !made)
        return propagate(made);
    return Firewall(std::move(*context), std::move(table));
}

Expected<void> Firewall::admit(const std::vector<std::uint32_t> &hosts) const {
    std::string commands;
    for (const auto host : hosts)
        commands += fmt::format("add element inet {} hosts {{ {}.{}.{}.{} }}\n", table_, host >> 24,
                                host >> 16 & 0xff, host >> 8 & 0xff, host & 0xff);
    return commands.empty() ? Expected<void>() : run(context_, commands);
}

} // namespace singularity::network
