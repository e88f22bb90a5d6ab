// SPDX-License-Identifier: GPL-2.0-or-later
#include "network.hpp"

#include "common/name_space.hpp"
#include "common/node_address.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace singularity::node {

namespace {

constexpr const char *kInterface = "eth0";
constexpr const char *kUplink = "uplink";

// A neighbour may be away for as long as it takes to restore it: until then it is asked for, once a second,
// and what is sent to it waits. With the kernel's own limit, 3, new connections would fail with EHOSTUNREACH.
// TCP's own limit for these, two minutes, is left as it is.
constexpr std::uint32_t kNeighbourProbes = 1000;

// One rtnetlink(7) message, built from front to back.
class Message {
  public:
    template <class Header>
    Message(std::uint16_t type, std::uint16_t flags, const Header &header) {
        const nlmsghdr head{.nlmsg_len = 0,
                            .nlmsg_type = type,
                            .nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags),
                            .nlmsg_seq = 1,
                            .nlmsg_pid = 0};
        append(&head, sizeof(head));
        append(&header, sizeof(header));
        align();
    }
    void attribute(std::uint16_t type, std::uint32_t number) {
        const auto at = open(type);
        append(&number, sizeof(number));
        close(at);
    }
    void attribute(std::uint16_t type, std::string_view text) {
        const auto at = open(type);
        append(text.data(), text.size());
        append("", 1);
        close(at);
    }
    void attribute(std::uint16_t type, const in6_addr &address) {
        const auto at = open(type);
        append(&address, sizeof(address));
        close(at);
    }
    [[nodiscard]] std::size_t open(std::uint16_t type) {
        const auto at = size_;
        const rtattr head{.rta_len = 0, .rta_type = type};
        append(&head, sizeof(head));
        return at;
    }
    void close(std::size_t at) {
        const auto length = static_cast<std::uint16_t>(size_ - at);
        std::memcpy(bytes_.data() + at, &length, sizeof(length)); // rta_len is first
        align();
    }
    void link_header() {
        const ifinfomsg link{};
        append(&link, sizeof(link));
    }
    std::string_view finish() {
        const auto length = static_cast<std::uint32_t>(size_);
        std::memcpy(bytes_.data(), &length, sizeof(length)); // nlmsg_len is first
        return {bytes_.data(), size_};
    }

  private:
    void append(const void *data, std::size_t size) {
        std::memcpy(bytes_.data() + size_, data, size);
        size_ += size;
    }
    void align() { size_ = (size_ + 3) / 4 * 4; }

    // Enough for the messages that are made here.
    std::array<char, 512> bytes_{};
    std::size_t size_ = 0;
};

Expected<void> ask(Message &request, const char *doing, const char *on) {
    const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!socket)
        return std::unexpected(errno_error("make", "a netlink socket"));
    const auto bytes = request.finish();
    // The kernel answers within send(2); there is nothing to wait for.
    std::array<char, 4096> answer{};
    if (send(socket.get(), bytes.data(), bytes.size(), 0) < 0 ||
        recv(socket.get(), answer.data(), answer.size(), 0) < 0)
        return std::unexpected(errno_error(doing, on));
    nlmsgerr result{};
    std::memcpy(&result, answer.data() + NLMSG_HDRLEN, sizeof(result));
    if (result.error != 0)
        return std::unexpected(errno_error(doing, on, -result.error));
    return {};
}

Expected<void> make_pair() {
    Message request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
    request.attribute(IFLA_IFNAME, kInterface);
    const auto info = request.open(IFLA_LINKINFO);
    request.attribute(IFLA_INFO_KIND, "veth");
    const auto data = request.open(IFLA_INFO_DATA);
    const auto peer = request.open(VETH_INFO_PEER);
    request.link_header();
    request.attribute(IFLA_IFNAME, kUplink);
    request.close(peer);
    request.close(data);
    request.close(info);
    return ask(request, "make", "a veth pair (is the kernel's module veth there?)");
}

Expected<void> be_patient_with_neighbours(std::uint8_t family, std::string_view table) {
    const auto index = if_nametoindex(kInterface);
    if (index == 0)
        return std::unexpected(errno_error("find the interface", kInterface));
    Message request(RTM_SETNEIGHTBL, 0, ndtmsg{.ndtm_family = family, .ndtm_pad1 = 0, .ndtm_pad2 = 0});
    request.attribute(NDTA_NAME, table);
    const auto limits = request.open(NDTA_PARMS);
    request.attribute(NDTPA_IFINDEX, index);
    request.attribute(NDTPA_MCAST_PROBES, kNeighbourProbes);
    request.attribute(NDTPA_UCAST_PROBES, kNeighbourProbes);
    request.close(limits);
    return ask(request, "be patient with the neighbours of", kInterface);
}

ifreq request_for(const char *name) {
    ifreq request{};
    std::ranges::copy(std::string_view(name), request.ifr_name);
    return request;
}

Expected<void> bring_up(const UniqueFd &socket, const char *name) {
    auto request = request_for(name);
    if (ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0)
        return std::unexpected(errno_error("find the interface", name));
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
    if (ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0)
        return std::unexpected(errno_error("bring up", name));
    return {};
}

Expected<void> set(const UniqueFd &socket, unsigned long what, std::uint32_t value) {
    auto request = request_for(kInterface);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = value;
    std::memcpy(&request.ifr_addr, &address, sizeof(address));
    if (ioctl(socket.get(), what, &request) != 0)
        return std::unexpected(errno_error("set the address of", kInterface));
    return {};
}

Expected<void> route_by_gateway(const Address &address) {
    const auto index = if_nametoindex(kInterface);
    if (index == 0)
        return std::unexpected(errno_error("find the interface", kInterface));
    rtmsg about{};
    about.rtm_family = AF_INET;
    about.rtm_table = RT_TABLE_MAIN;
    about.rtm_protocol = RTPROT_STATIC;
    about.rtm_scope = RT_SCOPE_UNIVERSE;
    about.rtm_type = RTN_UNICAST;
    Message request(RTM_NEWROUTE, NLM_F_CREATE, about);
    request.attribute(RTA_GATEWAY, (address.address & address.mask) | htonl(ntohl(~address.mask) - 1));
    request.attribute(RTA_OIF, index);
    return ask(request, "set the default route of", kInterface);
}

// A kernel that has no IPv6, or was told that interfaces have none: the node goes without.
bool has_no_ipv6(const Expected<void> &done) {
    return !done && (done.error().code == EACCES || done.error().code == EAFNOSUPPORT ||
                     done.error().code == EOPNOTSUPP);
}

Expected<void> configure_ipv6(const Address &address, DefaultRoute route) {
    const auto index = if_nametoindex(kInterface);
    if (index == 0)
        return std::unexpected(errno_error("find the interface", kInterface));
    const auto own = ntohl(address.address);
    const auto mask = ntohl(address.mask);
    ifaddrmsg about{};
    about.ifa_family = AF_INET6;
    about.ifa_prefixlen =
        static_cast<std::uint8_t>(kNodePrefix + static_cast<std::uint32_t>(std::popcount(mask)));
    about.ifa_flags = IFA_F_NODAD; // nobody else has it, and a program that is restored binds to it at once
    about.ifa_index = index;
    Message request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, about);
    request.attribute(IFA_LOCAL, ipv6_of(own));
    request.attribute(IFA_ADDRESS, ipv6_of(own));
    auto added = ask(request, "set the IPv6 address of", kInterface);
    if (has_no_ipv6(added))
        return {};
    if (!added)
        return added;
    if (auto patient = be_patient_with_neighbours(AF_INET6, "ndisc_cache"); !patient)
        return patient;
    if (route == DefaultRoute::no)
        return {};
    rtmsg way{};
    way.rtm_family = AF_INET6;
    way.rtm_table = RT_TABLE_MAIN;
    way.rtm_protocol = RTPROT_STATIC;
    way.rtm_scope = RT_SCOPE_UNIVERSE;
    way.rtm_type = RTN_UNICAST;
    Message led(RTM_NEWROUTE, NLM_F_CREATE, way);
    led.attribute(RTA_GATEWAY, ipv6_of((own & mask) | (~mask - 1)));
    led.attribute(RTA_OIF, index);
    return ask(led, "set the default route of", kInterface);
}

Expected<void> configure(const Address &address, DefaultRoute route) {
    if (auto made = make_pair(); !made)
        return made;
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket)
        return std::unexpected(errno_error("make", "a socket"));
    if (auto done = set(socket, SIOCSIFADDR, address.address); !done)
        return done;
    if (auto done = set(socket, SIOCSIFNETMASK, address.mask); !done)
        return done;
    for (const char *name : {"lo", kUplink, kInterface})
        if (auto up = bring_up(socket, name); !up)
            return up;
    if (auto patient = be_patient_with_neighbours(AF_INET, "arp_cache"); !patient)
        return patient;
    if (route == DefaultRoute::by_gateway)
        if (auto led = route_by_gateway(address); !led)
            return led;
    return configure_ipv6(address, route);
}

} // namespace

Expected<Address> parse_address(const std::string &text) {
    constexpr unsigned kBits = 32;
    const auto refuse = [&] {
        return failure("use the address", quote(text),
                       "expected an IPv4 address and the length of its prefix, such as 10.88.0.1/16", EINVAL);
    };
    const auto slash = text.find('/');
    if (slash == std::string::npos)
        return refuse();
    in_addr address{};
    unsigned bits = 0;
    const auto parsed = std::from_chars(text.data() + slash + 1, text.data() + text.size(), bits);
    if (inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1 || parsed.ec != std::errc{} ||
        parsed.ptr != text.data() + text.size() || bits < 1 || bits > kBits || address.s_addr == 0)
        return refuse();
    return Address{.address = address.s_addr, .mask = htonl(~std::uint32_t{0} << (kBits - bits))};
}

Expected<UniqueFd> make_network_namespace(const std::string &address, DefaultRoute route) {
    auto parsed = parse_address(address);
    if (!parsed)
        return propagate(parsed);
    auto home = NameSpace::current(NameSpaceKind::kNetwork);
    if (!home)
        return propagate(home);
    if (unshare(CLONE_NEWNET) != 0)
        return std::unexpected(errno_error("make", "a network namespace"));
    auto configured = configure(*parsed, route);
    auto fd = open_file("/proc/thread-self/ns/net", O_RDONLY);
    // Before anything else is done in the wrong network.
    if (auto returned = home->enter(); !returned)
        std::terminate();
    if (!configured)
        return propagate(configured);
    return fd;
}

} // namespace singularity::node
