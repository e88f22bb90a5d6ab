// SPDX-License-Identifier: GPL-2.0-or-later
#include "check_files.hpp"
#include "common/unique_fd.hpp"
#include "host_connections.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace singularity::host {
namespace {

// What CRIU saves; a protocol of 0 stands for all.
struct Protocol {
    int domain;
    int number;
};
constexpr std::array kSaved{Protocol{AF_UNIX, 0},           Protocol{AF_NETLINK, 0},
                            Protocol{AF_PACKET, 0},         Protocol{AF_INET, IPPROTO_TCP},
                            Protocol{AF_INET, IPPROTO_UDP}, Protocol{AF_INET6, IPPROTO_TCP},
                            Protocol{AF_INET6, IPPROTO_UDP}};

int option(int socket, int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    return getsockopt(socket, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

struct Address {
    in6_addr ip{};
    std::string host;
    std::string text;
    bool loopback = false;
};

std::optional<Address> address_of(const sockaddr_storage &from) {
    Address address;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (from.ss_family == AF_INET) {
        sockaddr_in v4{};
        std::memcpy(&v4, &from, sizeof(v4));
        address.ip.s6_addr[10] = address.ip.s6_addr[11] = 0xff; // the same address in IPv6
        std::memcpy(&address.ip.s6_addr[12], &v4.sin_addr, sizeof(v4.sin_addr));
        address.loopback = (ntohl(v4.sin_addr.s_addr) >> 24U) == 127;
        address.host = inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
        address.text = fmt::format("{}:{}", address.host, ntohs(v4.sin_port));
        return address;
    }
    if (from.ss_family == AF_INET6) {
        sockaddr_in6 v6{};
        std::memcpy(&v6, &from, sizeof(v6));
        address.ip = v6.sin6_addr;
        address.loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
                           (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127);
        address.host = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)
                           ? inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text.data(), text.size())
                           : inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
        address.text = fmt::format("[{}]:{}", address.host, ntohs(v6.sin6_port));
        return address;
    }
    return std::nullopt;
}

// A connection stays inside of the node if both ends have one address, or loopback's.
Expected<void> check_connection(const NodeFacts &facts, int socket, const std::string &what) {
    sockaddr_storage here{};
    sockaddr_storage there{};
    socklen_t size = sizeof(here);
    if (getsockname(socket, reinterpret_cast<sockaddr *>(&here), &size) != 0)
        return {};
    size = sizeof(there);
    if (getpeername(socket, reinterpret_cast<sockaddr *>(&there), &size) != 0)
        return {}; // not connected
    const auto local = address_of(here);
    const auto remote = address_of(there);
    if (facts.others_are_reset || !local || !remote || remote->loopback ||
        std::memcmp(&local->ip, &remote->ip, sizeof(local->ip)) == 0 ||
        facts.neighbours.contains(remote->host))
        return {};
    return cannot_save(what, "it is a TCP connection to " + remote->text +
                                 ", outside of the node: the program must close it before a checkpoint");
}

} // namespace

Expected<void> check_socket(const NodeFacts &facts, int socket, const std::string &what) {
    const int domain = option(socket, SO_DOMAIN);
    const int protocol = option(socket, SO_PROTOCOL);
    if (std::ranges::none_of(kSaved, [&](const Protocol &each) {
            return each.domain == domain && (each.number == 0 || each.number == protocol);
        }))
        return cannot_save(
            what,
            fmt::format("CRIU cannot save sockets of family {}, protocol {}: close it before a checkpoint",
                        domain, protocol));
    const UniqueFd network(ioctl(socket, SIOCGSKNS));
    struct stat status{};
    if (!network || fstat(network.get(), &status) != 0)
        return std::unexpected(errno_error("find the network namespace of", what));
    if (fmt::format("net:[{}]", status.st_ino) != facts.network)
        return cannot_save(what, "the socket was made outside of the node: declare it as a descriptor that "
                                 "leads outside, or close it");
    if (domain == AF_INET || domain == AF_INET6)
        return protocol == IPPROTO_TCP ? check_connection(facts, socket, what) : Expected<void>();
    if (domain != AF_UNIX || fstat(socket, &status) != 0)
        return {};
    const auto self = facts.unix_sockets.find(status.st_ino);
    if (self == facts.unix_sockets.end() || self->second.peer == 0)
        return {};
    const auto peer = facts.unix_sockets.find(self->second.peer);
    const bool within = peer != facts.unix_sockets.end();
    // The end that a daemon of the host has of a stream is in this network, too, since it was made from here.
    if (within && !is_of_host(peer->second, facts.unix_sockets))
        return {};
    if (within && self->second.type != SOCK_STREAM)
        return {}; // it may be of a device proxy, which hangs up before a dump
    auto why = !within && self->second.type != SOCK_DGRAM ? std::string(kOutside) : why_not_left(socket);
    if (!why.empty())
        return cannot_save(what, std::move(why));
    return {};
}

} // namespace singularity::host
