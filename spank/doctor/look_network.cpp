// SPDX-License-Identifier: GPL-2.0-or-later
// What agents of different hosts need to speak to each other, and nodes of a job.
#include "common/name_space.hpp"
#include "common/outside.hpp"
#include "common/port_range.hpp"
#include "gather.hpp"
#include "network/firewall.hpp"
#include "network/gateway.hpp"
#include "network/links.hpp"
#include "network/way_in.hpp"
#include "node/network.hpp"
#include "node/record.hpp"
#include "peers/credential.hpp"
#include "peers/handshake.hpp"

#include <array>
#include <cerrno>
#include <memory>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

namespace singularity::doctor {

namespace {

std::string text_of(in_addr address) {
    std::array<char, INET_ADDRSTRLEN> text{};
    return inet_ntop(AF_INET, &address, text.data(), text.size()) != nullptr ? text.data() : "";
}

in_addr address_in(const sockaddr *address) {
    return reinterpret_cast<const sockaddr_in *>(address)->sin_addr; // of family AF_INET
}

// In the calling thread's network namespace, which is to be thrown away.
std::vector<NetworkPiece> try_pieces() {
    std::vector<NetworkPiece> broken;
    const auto note = [&](const char *name, const Expected<void> &tried) {
        if (!tried)
            broken.push_back({name, tried.error().message()});
    };
    auto links = network::Links::open();
    if (!links)
        return {{"rtnetlink", links.error().message()}};
    note("bridge", links->make_bridge("doctor-bridge"));
    auto here = open_file("/proc/thread-self/ns/net", O_RDONLY);
    if (!here) {
        note("vxlan", propagate(here));
    } else {
        constexpr std::uint32_t kMtu = 1400;
        constexpr std::uint16_t kPort = 8475; // nobody else is here
        note("vxlan", links->make_vxlan({.name = "doctor-vxlan",
                                         .vni = 1,
                                         .port = kPort,
                                         .local = INADDR_LOOPBACK,
                                         .mtu = kMtu,
                                         .home = here->get()}));
        note("nf_tables", network::close_port(kPort));
    }
    return broken;
}

} // namespace

Fact<Munge> look_at_munge(const std::filesystem::path &socket) {
    Munge out{.socket = socket, .trouble = {}};
    if (const auto tried = peers::try_munge(socket); !tried)
        out.trouble = tried.error().why;
    return out;
}

Fact<HostName> look_at_host_name() {
    HostName out;
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) != 0)
        return not_seen(errno_error("read", "the name of this host"));
    out.name = peers::short_name(name.data());
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *found = nullptr;
    if (const int code = getaddrinfo(out.name.c_str(), nullptr, &hints, &found); code != 0)
        out.trouble = gai_strerror(code);
    const std::unique_ptr<addrinfo, void (*)(addrinfo *)> owner(found, [](addrinfo *list) {
        if (list != nullptr)
            freeaddrinfo(list);
    });
    for (const addrinfo *one = found; one != nullptr; one = one->ai_next)
        out.resolved.push_back(text_of(address_in(one->ai_addr)));
    ifaddrs *interfaces = nullptr;
    if (getifaddrs(&interfaces) != 0)
        return not_seen(errno_error("list", "the interfaces of this host"));
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs *)> list(interfaces, freeifaddrs);
    for (const ifaddrs *one = interfaces; one != nullptr; one = one->ifa_next)
        if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET)
            out.own.push_back(text_of(address_in(one->ifa_addr)));
    return out;
}

Fact<KernelNetwork> look_at_kernel_network(const Config::Network &settings) {
    if (geteuid() != 0)
        return not_seen(Unseen::kNeedsRoot, "they are tried out in a network namespace of their own");
    KernelNetwork out;
    // As of a virtual node: its interface is one end of a veth pair.
    auto made = node::make_network_namespace(node::kDefaultAddress, node::DefaultRoute::no);
    if (!made) {
        out.broken.push_back({"veth", made.error().message()});
        return out;
    }
    const auto place = NameSpace::open(fmt::format("/proc/self/fd/{}", made->get()), NameSpaceKind::kNetwork);
    if (!place)
        return not_seen(place.error());
    const auto visit = NameSpaceVisit::to(*place);
    if (!visit)
        return not_seen(visit.error());
    out.broken = try_pieces();
    if (const auto outside = parse_outside(settings.outside); outside && outside->open())
        if (auto tried = network::try_way_out(); !tried)
            out.broken.push_back({"nf_nat (for network.outside)", tried.error().message()});
    if (const auto range = parse_port_range(settings.publish); range && range->any())
        if (auto tried = network::try_way_in(); !tried)
            out.broken.push_back({"nf_nat and nft_fib (for network.publish)", tried.error().message()});
    return out;
}

} // namespace singularity::doctor
