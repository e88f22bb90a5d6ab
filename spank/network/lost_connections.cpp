// SPDX-License-Identifier: GPL-2.0-or-later
#include "lost_connections.hpp"

#include "common/node_address.hpp"
#include "ip_address.hpp"
#include "links.hpp"
#include "name_relay.hpp"
#include "plan.hpp"
#include "unreachable.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h> // join, since fmt 11
#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace singularity::network {

namespace {

// A node's own loopback stays, but for the name servers that are the host's (name_relay).
constexpr const char *kResets =
    "add table ip singularity_restore\n"
    "add chain ip singularity_restore output {{ type filter hook output priority filter; policy accept; }}\n"
    "add rule ip singularity_restore output ip daddr != {{ 127.0.0.0/8, {}.{}.{}.{}/{} }} "
    "tcp flags & (syn | rst) == 0 reject with tcp reset\n"
    "add rule ip singularity_restore output ip daddr 127.0.0.0/8 tcp dport 53 "
    "tcp flags & (syn | rst) == 0 reject with tcp reset\n";

constexpr const char *kResets6 =
    "add table ip6 singularity_restore\n"
    "add chain ip6 singularity_restore output {{ type filter hook output priority filter; policy accept; }}\n"
    "add rule ip6 singularity_restore output ip6 daddr != {{ ::1, fe80::/10, {}/{} }} "
    "tcp flags & (syn | rst) == 0 reject with tcp reset\n";

// In a network namespace in which others are. {0}: the name of a table that goes with its process.
constexpr const char *kResetsAmongOthers =
    "add table inet {0} {{ flags owner; }}\n"
    "add set inet {0} lost {{ type ipv4_addr . inet_service . ipv4_addr . inet_service; }}\n"
    "add set inet {0} lost6 {{ type ipv6_addr . inet_service . ipv6_addr . inet_service; }}\n"
    "add chain inet {0} output {{ type filter hook output priority filter; policy accept; }}\n"
    "add rule inet {0} output tcp flags & (syn | rst) == 0 "
    "ip saddr . tcp sport . ip daddr . tcp dport @lost reject with tcp reset\n"
    "add rule inet {0} output tcp flags & (syn | rst) == 0 "
    "ip6 saddr . tcp sport . ip6 daddr . tcp dport @lost6 reject with tcp reset\n";
constexpr std::size_t kElements = 512; // in one command

constexpr const char *kIpv6 = "/proc/sys/net/ipv6"; // not there: the kernel has none

constexpr std::uint32_t mask_of(std::uint32_t prefix) {
    return prefix == 0 ? 0 : ~std::uint32_t{0} << (32 - prefix);
}

// Those that have, or had, another end: not TCP_LISTEN, not what waits for an answer to its first packet, and
// not what no program holds any more.
constexpr std::uint32_t kConnected = 1U << TCP_ESTABLISHED | 1U << TCP_FIN_WAIT1 | 1U << TCP_FIN_WAIT2 |
                                     1U << TCP_CLOSE_WAIT | 1U << TCP_LAST_ACK | 1U << TCP_CLOSING;

struct Found {
    OwnNetwork own;
    std::uint8_t protocol = IPPROTO_TCP;
    const Sockets *of = nullptr;                // null: all
    const std::set<Connection> *only = nullptr; // null: all that lead to the outside
    std::vector<inet_diag_req_v2> connections;
};

in6_addr ipv6_in(const std::uint32_t *words) {
    in6_addr out{};
    std::memcpy(&out, words, sizeof(out));
    return out;
}

bool is_outside(const in6_addr &peer, const OwnNetwork &own) {
    const auto ours = ipv6_of(own.address);
    std::uint32_t last = 0;
    std::memcpy(&last, &peer.s6_addr[12], sizeof(last));
    return !IN6_IS_ADDR_LOOPBACK(&peer) && !IN6_IS_ADDR_LINKLOCAL(&peer) &&
           (std::memcmp(&peer, &ours, kNodePrefix / 8) != 0 ||
            ((ntohl(last) ^ own.address) & mask_of(own.prefix)) != 0);
}

// IPv4 in an IPv6 socket also.
bool is_outside(const inet_diag_msg &about, const OwnNetwork &own) {
    std::uint32_t peer = about.id.idiag_dst[0];
    if (about.idiag_family == AF_INET6) {
        const auto address = ipv6_in(about.id.idiag_dst);
        if (!IN6_IS_ADDR_V4MAPPED(&address))
            return is_outside(address, own);
        peer = about.id.idiag_dst[3];
    }
    peer = ntohl(peer);
    if (peer >> 24 == IN_LOOPBACKNET)
        return ntohs(about.id.idiag_dport) == kNamePort;
    return ((peer ^ own.address) & mask_of(own.prefix)) != 0;
}

bool is_outside(const Connection &one, const OwnNetwork &own) {
    inet_diag_msg about{};
    about.idiag_family = AF_INET6;
    std::memcpy(about.id.idiag_dst, &one.peer, sizeof(one.peer));
    about.id.idiag_dport = htons(one.peer_port);
    return is_outside(about, own);
}

in6_addr address_in(std::uint8_t family, const std::uint32_t *words) {
    if (family == AF_INET6)
        return ipv6_in(words);
    in6_addr out{};
    out.s6_addr[10] = out.s6_addr[11] = 0xff;
    std::memcpy(&out.s6_addr[12], words, sizeof(in_addr));
    return out;
}

Connection ends_of(const inet_diag_msg &about) {
    return {.own = address_in(about.idiag_family, about.id.idiag_src),
            .peer = address_in(about.idiag_family, about.id.idiag_dst),
            .own_port = ntohs(about.id.idiag_sport),
            .peer_port = ntohs(about.id.idiag_dport)};
}

// "10.64.0.1 . 4711 . 10.64.0.1 . 80"
std::string element_of(const Connection &one) {
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&one.own);
    const auto text = [mapped](const in6_addr &address) {
        std::array<char, INET6_ADDRSTRLEN> out{};
        return std::string(mapped ? inet_ntop(AF_INET, &address.s6_addr[12], out.data(), out.size())
                                  : inet_ntop(AF_INET6, &address, out.data(), out.size()));
    };
    return fmt::format("{} . {} . {} . {}", text(one.own), one.own_port, text(one.peer), one.peer_port);
}

Expected<void> add_elements(const Nft &nft, const std::string &table, const char *set, bool mapped,
                            const std::set<Connection> &connections) {
    std::vector<std::string> elements;
    const auto flush = [&]() -> Expected<void> {
        if (elements.empty())
            return {};
        return nft.run(fmt::format("add element inet {} {} {{ {} }}\n", table, set,
                                   fmt::join(std::exchange(elements, {}), ", ")));
    };
    for (const auto &one : connections) {
        if (IN6_IS_ADDR_V4MAPPED(&one.own) != mapped)
            continue;
        elements.push_back(element_of(one));
        if (elements.size() == kElements)
            if (auto added = flush(); !added)
                return added;
    }
    return flush();
}

int take(const nlmsghdr *message, void *to) {
    auto &found = *static_cast<Found *>(to);
    inet_diag_msg about{};
    if (mnl_nlmsg_get_payload_len(message) < sizeof(about))
        return MNL_CB_ERROR;
    std::memcpy(&about, mnl_nlmsg_get_payload(message), sizeof(about));
    const bool wanted = found.of == nullptr || found.of->contains(about.idiag_inode);
    if (wanted &&
        (found.only == nullptr ? is_outside(about, found.own) : found.only->contains(ends_of(about))))
        found.connections.push_back({.sdiag_family = about.idiag_family,
                                     .sdiag_protocol = found.protocol,
                                     .idiag_ext = 0,
                                     .pad = 0,
                                     .idiag_states = kConnected,
                                     .id = about.id});
    return MNL_CB_OK;
}

class Diagnosis {
  public:
    static Expected<Diagnosis> open() {
        Diagnosis out(mnl_socket_open2(NETLINK_SOCK_DIAG, SOCK_CLOEXEC));
        if (!out.socket_ || mnl_socket_bind(out.socket_.get(), 0, MNL_SOCKET_AUTOPID) != 0)
            return std::unexpected(errno_error("make", "a netlink socket"));
        return out;
    }

    // Of a UDP socket TCP_ESTABLISHED means that it is connected.
    Expected<void> list(std::uint8_t family, Found &into) {
        const inet_diag_req_v2 all{.sdiag_family = family,
                                   .sdiag_protocol = into.protocol,
                                   .idiag_ext = 0,
                                   .pad = 0,
                                   .idiag_states = kConnected,
                                   .id = {}};
        if (ask(all, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &into))
            return {};
        return std::unexpected(errno_error("list", into.protocol == IPPROTO_TCP ? "a node's TCP connections"
                                                                                : "a node's UDP sockets"));
    }

    // ENOENT: it has ended by itself.
    Expected<void> destroy(const inet_diag_req_v2 &connection) {
        if (ask(connection, SOCK_DESTROY, NLM_F_ACK, nullptr) || errno == ENOENT)
            return {};
        return std::unexpected(errno_error(
            "end", fmt::format("the connection from port {} of a node to the outside (does the kernel "
                               "have CONFIG_INET_DIAG_DESTROY?)",
                               ntohs(connection.id.idiag_sport))));
    }

  private:
    struct Close {
        void operator()(mnl_socket *socket) const { mnl_socket_close(socket); }
    };
    explicit Diagnosis(mnl_socket *socket) : socket_(socket) {}

    bool ask(const inet_diag_req_v2 &body, std::uint16_t type, unsigned flags, Found *found) {
        alignas(nlmsghdr) std::array<char, 256> request{};
        nlmsghdr *const head = mnl_nlmsg_put_header(request.data());
        head->nlmsg_type = type;
        head->nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
        head->nlmsg_seq = ++sequence_;
        std::memcpy(mnl_nlmsg_put_extra_header(head, sizeof(body)), &body, sizeof(body));
        if (mnl_socket_sendto(socket_.get(), head, head->nlmsg_len) < 0)
            return false;
        // The kernel answers within send(2) and recv(2); there is nothing to wait for.
        alignas(nlmsghdr) std::array<char, 32768> answer{};
        for (int more = MNL_CB_OK; more == MNL_CB_OK;) {
            const auto got = mnl_socket_recvfrom(socket_.get(), answer.data(), answer.size());
            if (got < 0)
                return false;
            more = mnl_cb_run(answer.data(), static_cast<std::size_t>(got), sequence_,
                              mnl_socket_get_portid(socket_.get()), found != nullptr ? take : nullptr, found);
            if (more == MNL_CB_ERROR)
                return false;
        }
        return true;
    }

    std::unique_ptr<mnl_socket, Close> socket_;
    unsigned sequence_ = 0;
};

} // namespace

namespace {

// A default route behind all others, until the last copy of what it returns is gone.
Expected<std::shared_ptr<void>> lead_out(const OwnNetwork &own, bool ipv4) {
    constexpr std::uint32_t kBehind = 1'000'000; // and no two processes have the same
    auto links = Links::open();
    if (!links)
        return propagate(links);
    const auto gateway = (own.address & mask_of(own.prefix)) | (~mask_of(own.prefix) - 1);
    const Links::Route route{.to = ipv4 ? IpAddress() : IpAddress(in6_addr{}),
                             .prefix = 0,
                             .gateway = ipv4 ? IpAddress(gateway) : IpAddress(ipv6_of(gateway)),
                             .metric = kBehind + static_cast<std::uint32_t>(getpid())};
    if (auto led = links->add_route(kInNode, route); !led)
        return propagate(led);
    auto shared = std::make_shared<Links>(std::move(*links));
    return std::shared_ptr<void>(nullptr, [shared, route](void *) {
        // The way is gone with the node's network in any case.
        static_cast<void>(shared->remove_route(kInNode, route));
    });
}

Expected<std::size_t> reset(Found found) {
    auto diagnosis = Diagnosis::open();
    if (!diagnosis)
        return propagate(diagnosis);
    for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}})
        if (auto listed = diagnosis->list(family, found); !listed)
            return propagate(listed);
    for (const auto &connection : found.connections)
        if (auto ended = diagnosis->destroy(connection); !ended)
            return propagate(ended);
    return found.connections.size();
}

// ENOENT: a kernel that knows nothing of UDP sockets, of which criu has saved none.
Expected<void> tell_datagram_sockets(const OwnNetwork &own, const std::set<Connection> *of) {
    auto diagnosis = Diagnosis::open();
    if (!diagnosis)
        return propagate(diagnosis);
    Found found{.own = own, .protocol = IPPROTO_UDP, .of = nullptr, .only = of, .connections = {}};
    for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}})
        if (auto listed = diagnosis->list(family, found); !listed)
            return listed.error().code == ENOENT ? Expected<void>() : listed;
    for (const auto &socket : found.connections) {
        const auto &id = socket.id;
        const auto peer = ipv6_in(id.idiag_dst);
        if (socket.sdiag_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&peer)) {
            if (auto told = say_unreachable(Datagram6Ends{.own = ipv6_in(id.idiag_src),
                                                          .peer = peer,
                                                          .own_port = id.idiag_sport,
                                                          .peer_port = id.idiag_dport});
                !told)
                return told;
            continue;
        }
        const std::size_t word =
            socket.sdiag_family == AF_INET ? 0 : 3; // of an address that is mapped into IPv6
        if (auto told = say_unreachable(DatagramEnds{.own = id.idiag_src[word],
                                                     .peer = id.idiag_dst[word],
                                                     .own_port = id.idiag_sport,
                                                     .peer_port = id.idiag_dport});
            !told)
            return told;
    }
    return {};
}

} // namespace

bool operator<(const Connection &one, const Connection &other) {
    const auto key = [](const Connection &of) {
        return std::tuple(std::string_view(reinterpret_cast<const char *>(&of.own), sizeof(of.own)),
                          std::string_view(reinterpret_cast<const char *>(&of.peer), sizeof(of.peer)),
                          of.own_port, of.peer_port);
    };
    return key(one) < key(other);
}

Expected<std::size_t> reset_connections(const OwnNetwork &own, const Sockets *of) {
    return reset({.own = own, .protocol = IPPROTO_TCP, .of = of, .only = nullptr, .connections = {}});
}

Expected<LostConnections> LostConnections::expect(const OwnNetwork &own, Brought brought) {
    auto nft = Nft::open();
    if (!nft)
        return propagate(nft);
    const auto table = fmt::format("singularity_restore_{}", getpid());
    auto set = nft->run(fmt::format(kResetsAmongOthers, table));
    if (set)
        set = add_elements(*nft, table, "lost", true, brought.streams);
    if (set)
        set = add_elements(*nft, table, "lost6", false, brought.streams);
    if (!set)
        return propagate(set);
    std::erase_if(brought.datagrams, [&](const Connection &one) { return !is_outside(one, own); });
    std::vector<std::shared_ptr<void>> way;
    for (const bool mapped : {true, false}) {
        const auto leaves = [&](const Connection &one) {
            return IN6_IS_ADDR_V4MAPPED(&one.peer) == mapped && is_outside(one, own);
        };
        if (std::ranges::none_of(brought.streams, leaves) && std::ranges::none_of(brought.datagrams, leaves))
            continue;
        auto led = lead_out(own, mapped);
        if (!led)
            return propagate(led);
        way.push_back(std::move(*led));
    }
    LostConnections out(std::move(*nft), own, std::move(brought));
    out.way_ = std::move(way);
    return out;
}

Expected<LostConnections> LostConnections::expect(const OwnNetwork &own) {
    auto nft = Nft::open();
    if (!nft)
        return propagate(nft);
    const auto network = own.address & mask_of(own.prefix);
    if (auto set = nft->run(fmt::format(kResets, network >> 24, network >> 16 & 0xff, network >> 8 & 0xff,
                                        network & 0xff, own.prefix));
        !set)
        return propagate(set);
    if (access(kIpv6, F_OK) != 0)
        return LostConnections(std::move(*nft), own, std::nullopt);
    std::array<char, INET6_ADDRSTRLEN> text{};
    const auto network6 = ipv6_of(network);
    if (auto set = nft->run(fmt::format(kResets6, inet_ntop(AF_INET6, &network6, text.data(), text.size()),
                                        kNodePrefix + own.prefix));
        !set)
        return propagate(set);
    return LostConnections(std::move(*nft), own, std::nullopt);
}

Expected<void> LostConnections::done() const {
    const auto *const brought = brought_ ? &*brought_ : nullptr;
    auto ended = reset({.own = own_,
                        .protocol = IPPROTO_TCP,
                        .of = nullptr,
                        .only = brought == nullptr ? nullptr : &brought->streams,
                        .connections = {}});
    if (!ended)
        return propagate(ended);
    if (auto told = tell_datagram_sockets(own_, brought == nullptr ? nullptr : &brought->datagrams); !told)
        return told;
    if (brought != nullptr)
        return nft_.run(fmt::format("delete table inet singularity_restore_{}\n", getpid()));
    if (access(kIpv6, F_OK) == 0)
        if (auto removed = nft_.run("delete table ip6 singularity_restore\n"); !removed)
            return removed;
    return nft_.run("delete table ip singularity_restore\n");
}

} // namespace singularity::network
