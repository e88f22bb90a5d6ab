// SPDX-License-Identifier: GPL-2.0-or-later
#include "unreachable.hpp"

#include "common/unique_fd.hpp"

#include <array>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
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

struct Quoted6 {
    icmp6_hdr icmp{};
    ip6_hdr ip{};
    udphdr udp{};
};
static_assert(sizeof(Quoted6) == sizeof(icmp6_hdr) + sizeof(ip6_hdr) + sizeof(udphdr));

udphdr quoted_udp(std::uint16_t own, std::uint16_t peer) {
    udphdr out{};
    out.source = own;
    out.dest = peer;
    out.len = htons(sizeof(udphdr));
    return out;
}

// To the host itself; for IPv6 the kernel computes the checksum.
template <class Message, class Address>
Expected<void> say(int protocol, const Message &message, const Address &to, std::uint16_t port) {
    const UniqueFd socket(
        ::socket(protocol == IPPROTO_ICMP ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC, protocol));
    if (!socket)
        return std::unexpected(errno_error("make", "a raw socket"));
    if (sendto(socket.get(), &message, sizeof(message), 0, reinterpret_cast<const sockaddr *>(&to),
               sizeof(to)) != static_cast<ssize_t>(sizeof(message)))
        return std::unexpected(errno_error(
            "tell", fmt::format("the UDP socket at port {} of a node that its peer has gone", ntohs(port))));
    return {};
}

} // namespace

Expected<void> say_unreachable(const DatagramEnds &ends) {
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
    message.udp = quoted_udp(ends.own_port, ends.peer_port);
    message.icmp.checksum = checksum(message);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = ends.own;
    return say(IPPROTO_ICMP, message, to, ends.own_port);
}

Expected<void> say_unreachable(const Datagram6Ends &ends) {
    Quoted6 message;
    message.icmp.icmp6_type = ICMP6_DST_UNREACH;
    message.icmp.icmp6_code = ICMP6_DST_UNREACH_NOPORT;
    message.ip.ip6_vfc = 6U << 4;
    message.ip.ip6_plen = htons(sizeof(udphdr));
    message.ip.ip6_nxt = IPPROTO_UDP;
    message.ip.ip6_hlim = IPDEFTTL;
    message.ip.ip6_src = ends.own;
    message.ip.ip6_dst = ends.peer;
    message.udp = quoted_udp(ends.own_port, ends.peer_port);
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_addr = ends.own;
    return say(IPPROTO_ICMPV6, message, to, ends.own_port);
}

} // namespace singularity::network
