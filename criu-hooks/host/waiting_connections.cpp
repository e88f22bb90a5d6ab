// SPDX-License-Identifier: GPL-2.0-or-later
#include "waiting_connections.hpp"

#include "held_sockets.hpp"
#include "sock_diag.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace singularity::host {
namespace {

struct End {
    in6_addr address{}; // one of IPv4 as it is mapped
    std::string host;
    std::uint16_t port = 0;
};

// inet_diag's form of an address.
End end_of(std::uint8_t family, std::span<const std::uint32_t, 4> words, std::uint16_t port) {
    End out;
    out.port = ntohs(port);
    if (family == AF_INET) {
        out.address.s6_addr[10] = out.address.s6_addr[11] = 0xff;
        std::memcpy(&out.address.s6_addr[12], words.data(), sizeof(in_addr));
    } else {
        std::memcpy(&out.address, words.data(), sizeof(out.address));
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    out.host = IN6_IS_ADDR_V4MAPPED(&out.address)
                   ? inet_ntop(AF_INET, &out.address.s6_addr[12], text.data(), text.size())
                   : inet_ntop(AF_INET6, &out.address, text.data(), text.size());
    return out;
}

bool is_loopback(const in6_addr &address) {
    return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

// Whether the node itself listens there: others may be in its network.
Expected<bool> listens(const DumpRequest &request, std::uint16_t port) {
    auto held = held_sockets(request.init);
    if (!held)
        return propagate(held);
    bool out = false;
    for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}}) {
        inet_diag_req_v2 all{};
        all.sdiag_family = family;
        all.sdiag_protocol = IPPROTO_TCP;
        all.idiag_states = 1U << TCP_LISTEN;
        auto asked = for_each_socket(request.init,
                                     {.body = std::as_bytes(std::span(&all, 1)),
                                      .what = "the node's listening TCP sockets",
                                      .module = "tcp_diag"},
                                     [&](nlmsghdr *message) {
                                         inet_diag_msg about{};
                                         if (message->nlmsg_len < NLMSG_LENGTH(sizeof(about)))
                                             return;
                                         std::memcpy(&about, NLMSG_DATA(message), sizeof(about));
                                         out = out || (ntohs(about.id.idiag_sport) == port &&
                                                       held->contains(about.idiag_inode));
                                     });
        if (!asked)
            return propagate(asked);
    }
    return out;
}

// Why the connection must be accepted before a dump. Nothing: its client is not of the job, or it is held by
// a program.
std::optional<std::string> why_not(const DumpRequest &request, nlmsghdr *message) {
    inet_diag_msg about{};
    if (message->nlmsg_len < NLMSG_LENGTH(sizeof(about)))
        return std::nullopt;
    std::memcpy(&about, NLMSG_DATA(message), sizeof(about));
    if (about.idiag_inode != 0)
        return std::nullopt;
    const auto own = end_of(about.idiag_family, about.id.idiag_src, about.id.idiag_sport);
    const auto client = end_of(about.idiag_family, about.id.idiag_dst, about.id.idiag_dport);
    if (!is_loopback(client.address) &&
        std::memcmp(&own.address, &client.address, sizeof(own.address)) != 0 &&
        std::ranges::find(request.neighbours, client.host) == request.neighbours.end())
        return std::nullopt;
    return fmt::format(
        "its program has not accepted a connection from {} port {}, which is in the same job: it "
        "must, or stop listening",
        client.host, client.port);
}

} // namespace

Expected<void> check_waiting_connections(const DumpRequest &request) {
    for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}}) {
        inet_diag_req_v2 all{};
        all.sdiag_family = family;
        all.sdiag_protocol = IPPROTO_TCP;
        // What a program has closed is in none of these states.
        all.idiag_states = 1U << TCP_ESTABLISHED | 1U << TCP_CLOSE_WAIT;
        std::map<std::uint16_t, std::string> waiting; // by port
        auto asked = for_each_socket(request.init,
                                     {.body = std::as_bytes(std::span(&all, 1)),
                                      .what = "the node's TCP connections",
                                      .module = "tcp_diag"},
                                     [&](nlmsghdr *message) {
                                         auto found = why_not(request, message);
                                         if (!found)
                                             return;
                                         inet_diag_msg about{};
                                         std::memcpy(&about, NLMSG_DATA(message), sizeof(about));
                                         waiting.emplace(ntohs(about.id.idiag_sport), std::move(*found));
                                     });
        if (!asked)
            return asked;
        for (auto &[port, why] : waiting) {
            auto own = listens(request, port);
            if (!own)
                return propagate(own);
            if (*own)
                return failure("save", fmt::format("TCP port {}", port), std::move(why), EAGAIN);
        }
    }
    return {};
}

} // namespace singularity::host
