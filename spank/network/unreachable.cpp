// SPDX-License-Identifier: GPL-2.0-or-later
#include "unreachable.hpp"

#include "common/unique_fd.hpp"

#include <array>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <sys/socket.h>

namespace singularity::network {

namespace {

// The message quotes the header of the datagram that could not be delivered, by which the kernel finds the
// socket.
struct Quoted {
    icmphdr icmp{};
    iphdr ip{};
    udphdr udp{};
};
static_assert(sizeof(Quoted) == sizeof(icmphdr) + sizeof(iphdr) + sizeof(udphdr));

// RFC 1071.
std::uint16_t checksum(const Quoted &message) {
    std::array<std::uint16_t, sizeof(Quoted) / 2> words{};
    std::memcpy(words.data(), &message, sizeof(message));
    std::uint32_t sum = 0;
    for (const auto word : words)
        sum += word;
    while (sum >> 16 != 0)
        sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

} // namespace

Expected<void> say_unreachable(const DatagramEnds &ends) {
    const UniqueFd socket(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
    if (!socket)
        return std::unexpected(errno_error("make", "a raw socket"));
    Quoted message;
    message.icmp.type = ICMP_DEST_UNREACH;
    message.icmp.code = ICMP_PORT_UNREACH;
    message.ip.version = IPVERSION;
    message.ip.ihl = sizeof(iphdr) / 4;
    message.ip.ttl = IPDEFTTL;
    message.ip.tot_len = htons(sizeof(iphdr) + sizeof(udphdr));
    message.ip.protocol = IPPROTO_UDP;
    message.ip.saddr = ends.own;
    message.ip.daddr = ends.peer;
    message.udp.source = ends.own_port;
    message.udp.dest = ends.peer_port;
    message.udp.len = htons(sizeof(udphdr));
    message.icmp.checksum = checksum(message);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = ends.own;
    if (sendto(socket.get(), &message, sizeof(message), 0, reinterpret_cast<const sockaddr *>(&to),
               sizeof(to)) != static_cast<ssize_t>(sizeof(message)))
        return std::unexpected(
            errno_error("tell", fmt::format("the UDP socket at port {} of a node that its peer has gone",
                                            ntohs(ends.own_port))));
    return {};
}

} // namespace singularity::network
