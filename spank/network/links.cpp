// SPDX-License-Identifier: GPL-2.0-or-later
#include "links.hpp"

#include <array>

#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/if_bridge.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>

namespace singularity::network {

namespace {

constexpr std::size_t kRequestSize = 1024; // enough for any that is made here
constexpr std::size_t kAnswerSize = 8192;  // an interface with all its attributes

ifinfomsg *link_header(nlmsghdr *head, std::uint16_t type, unsigned flags) {
    head->nlmsg_type = type;
    head->nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    return static_cast<ifinfomsg *>(mnl_nlmsg_put_extra_header(head, sizeof(ifinfomsg)));
}

constexpr unsigned kNew = NLM_F_CREATE | NLM_F_EXCL;

} // namespace

Expected<Links> Links::open() {
    std::unique_ptr<mnl_socket, Close> socket(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC));
    if (!socket || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) != 0)
        return std::unexpected(errno_error("make", "a netlink socket"));
    return Links(std::move(socket));
}

Expected<void> Links::ask(const std::string &doing, const std::string &on, const Fill &fill) {
    alignas(nlmsghdr) std::array<char, kRequestSize> request{};
    nlmsghdr *const head = mnl_nlmsg_put_header(request.data());
    fill(head);
    head->nlmsg_seq = 1;
    // The kernel answers within send(2); there is nothing to wait for.
    alignas(nlmsghdr) std::array<char, kAnswerSize> answer{};
    ssize_t got = 0;
    if (mnl_socket_sendto(socket_.get(), head, head->nlmsg_len) < 0 ||
        (got = mnl_socket_recvfrom(socket_.get(), answer.data(), answer.size())) < 0)
        return std::unexpected(errno_error(doing, on));
    if (mnl_cb_run(answer.data(), static_cast<std::size_t>(got), 1, mnl_socket_get_portid(socket_.get()),
                   nullptr, nullptr) < 0)
        return std::unexpected(errno_error(doing, on));
    return {};
}

Expected<std::uint32_t> Links::index_of(const std::string &name) {
    alignas(nlmsghdr) std::array<char, kRequestSize> request{};
    nlmsghdr *const head = mnl_nlmsg_put_header(request.data());
    link_header(head, RTM_GETLINK, 0);
    head->nlmsg_flags = NLM_F_REQUEST;
    head->nlmsg_seq = 1;
    mnl_attr_put_strz(head, IFLA_IFNAME, name.c_str());
    alignas(nlmsghdr) std::array<char, kAnswerSize> answer{};
    ssize_t got = 0;
    if (mnl_socket_sendto(socket_.get(), head, head->nlmsg_len) < 0 ||
        (got = mnl_socket_recvfrom(socket_.get(), answer.data(), answer.size())) < 0)
        return std::unexpected(errno_error("find the interface", name));
    std::uint32_t index = 0;
    const auto take = [](const nlmsghdr *message, void *to) {
        const auto *const link = static_cast<const ifinfomsg *>(mnl_nlmsg_get_payload(message));
        *static_cast<std::uint32_t *>(to) = static_cast<std::uint32_t>(link->ifi_index);
        return MNL_CB_OK;
    };
    if (mnl_cb_run(answer.data(), static_cast<std::size_t>(got), 1, mnl_socket_get_portid(socket_.get()),
                   take, &index) < 0)
        return std::unexpected(errno_error("find the interface", name));
    return index;
}

Expected<void> Links::make_bridge(const std::string &name) {
    return ask("make the bridge", name, [&](nlmsghdr *head) {
        link_header(head, RTM_NEWLINK, kNew);
        mnl_attr_put_strz(head, IFLA_IFNAME, name.c_str());
        nlattr *const info = mnl_attr_nest_start(head, IFLA_LINKINFO);
        mnl_attr_put_strz(head, IFLA_INFO_KIND, "bridge");
        nlattr *const data = mnl_attr_nest_start(head, IFLA_INFO_DATA);
        // Multicast is rare here and goes to all; without queriers snooping would lose it.
        mnl_attr_put_u8(head, IFLA_BR_MCAST_SNOOPING, 0);
        mnl_attr_nest_end(head, data);
        mnl_attr_nest_end(head, info);
    });
}

Expected<void> Links::make_vxlan(const Vxlan &wanted) {
    return ask("make the interface", wanted.name, [&](nlmsghdr *head) {
        link_header(head, RTM_NEWLINK, kNew);
        mnl_attr_put_strz(head, IFLA_IFNAME, wanted.name.c_str());
        mnl_attr_put_u32(head, IFLA_NET_NS_FD, static_cast<std::uint32_t>(wanted.home));
        mnl_attr_put_u32(head, IFLA_MTU, wanted.mtu);
        nlattr *const info = mnl_attr_nest_start(head, IFLA_LINKINFO);
        mnl_attr_put_strz(head, IFLA_INFO_KIND, "vxlan");
        nlattr *const data = mnl_attr_nest_start(head, IFLA_INFO_DATA);
        mnl_attr_put_u32(head, IFLA_VXLAN_ID, wanted.vni);
        mnl_attr_put_u32(head, IFLA_VXLAN_LOCAL, htonl(wanted.local));
        mnl_attr_put_u16(head, IFLA_VXLAN_PORT, htons(wanted.port));
        // Who is where is told, not learned.
        mnl_attr_put_u8(head, IFLA_VXLAN_LEARNING, 0);
        mnl_attr_nest_end(head, data);
        mnl_attr_nest_end(head, info);
    });
}

Expected<void> Links::make_pair(const std::string &name, const std::string &other, int home) {
    return ask("make the interface", name, [&](nlmsghdr *head) {
        link_header(head, RTM_NEWLINK, kNew);
        mnl_attr_put_strz(head, IFLA_IFNAME, name.c_str());
        nlattr *const info = mnl_attr_nest_start(head, IFLA_LINKINFO);
        mnl_attr_put_strz(head, IFLA_INFO_KIND, "veth");
        nlattr *const data = mnl_attr_nest_start(head, IFLA_INFO_DATA);
        nlattr *const peer = mnl_attr_nest_start(head, VETH_INFO_PEER);
        mnl_nlmsg_put_extra_header(head, sizeof(ifinfomsg));
        mnl_attr_put_strz(head, IFLA_IFNAME, other.c_str());
        mnl_attr_put_u32(head, IFLA_NET_NS_FD, static_cast<std::uint32_t>(home));
        mnl_attr_nest_end(head, peer);
        mnl_attr_nest_end(head, data);
        mnl_attr_nest_end(head, info);
    });
}

Expected<void> Links::add_address(const std::string &name, const IpAddress &address, std::uint32_t prefix) {
    auto index = index_of(name);
    if (!index)
        return propagate(index);
    return ask("set the address of", name, [&](nlmsghdr *head) {
        head->nlmsg_type = RTM_NEWADDR;
        head->nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | kNew);
        auto *const about = static_cast<ifaddrmsg *>(mnl_nlmsg_put_extra_header(head, sizeof(ifaddrmsg)));
        about->ifa_family = address.family();
        about->ifa_flags = IFA_F_NODAD;
        about->ifa_prefixlen = static_cast<std::uint8_t>(prefix);
        about->ifa_scope = RT_SCOPE_UNIVERSE;
        about->ifa_index = *index;
        mnl_attr_put(head, IFA_LOCAL, address.size(), address.data());
        mnl_attr_put(head, IFA_ADDRESS, address.size(), address.data());
    });
}

Expected<void> Links::ask_about(const std::string &name, const Route &route, std::uint16_t type,
                                unsigned flags) {
    auto index = index_of(name);
    if (!index)
        return propagate(index);
    return ask("change the routes of", name, [&](nlmsghdr *head) {
        head->nlmsg_type = type;
        head->nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
        auto *const about = static_cast<rtmsg *>(mnl_nlmsg_put_extra_header(head, sizeof(rtmsg)));
        about->rtm_family = route.to.family();
        about->rtm_dst_len = static_cast<std::uint8_t>(route.prefix);
        about->rtm_table = RT_TABLE_MAIN;
        if (type == RTM_NEWROUTE) {
            about->rtm_protocol = RTPROT_STATIC;
            about->rtm_scope = route.gateway ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
        } else { // whoever has made it
            about->rtm_scope = RT_SCOPE_NOWHERE;
        }
        about->rtm_type = RTN_UNICAST;
        if (route.prefix != 0)
            mnl_attr_put(head, RTA_DST, route.to.size(), route.to.data());
        if (route.gateway)
            mnl_attr_put(head, RTA_GATEWAY, route.gateway->size(), route.gateway->data());
        if (route.metric != 0)
            mnl_attr_put_u32(head, RTA_PRIORITY, route.metric);
        mnl_attr_put_u32(head, RTA_OIF, *index);
    });
}

Expected<void> Links::add_route(const std::string &name, const Route &route) {
    return ask_about(name, route, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
}

Expected<void> Links::remove_route(const std::string &name, const Route &route) {
    return ask_about(name, route, RTM_DELROUTE, 0);
}

Expected<void> Links::add_neighbour(const std::string &name, const IpAddress &address, const Mac &mac) {
    auto index = index_of(name);
    if (!index)
        return propagate(index);
    return ask("tell who is where to", name, [&](nlmsghdr *head) {
        head->nlmsg_type = RTM_NEWNEIGH;
        head->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        auto *const neighbour = static_cast<ndmsg *>(mnl_nlmsg_put_extra_header(head, sizeof(ndmsg)));
        neighbour->ndm_family = address.family();
        neighbour->ndm_ifindex = static_cast<int>(*index);
        neighbour->ndm_state = NUD_PERMANENT;
        mnl_attr_put(head, NDA_LLADDR, mac.size(), mac.data());
        mnl_attr_put(head, NDA_DST, address.size(), address.data());
    });
}

Expected<void> Links::send_to(const std::string &vxlan, const std::optional<Mac> &mac, std::uint32_t host) {
    auto index = index_of(vxlan);
    if (!index)
        return propagate(index);
    return ask("tell who is where to", vxlan, [&](nlmsghdr *head) {
        head->nlmsg_type = RTM_NEWNEIGH;
        head->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
        head->nlmsg_flags =
            static_cast<std::uint16_t>(head->nlmsg_flags | (mac ? NLM_F_REPLACE : NLM_F_APPEND));
        auto *const neighbour = static_cast<ndmsg *>(mnl_nlmsg_put_extra_header(head, sizeof(ndmsg)));
        neighbour->ndm_family = PF_BRIDGE;
        neighbour->ndm_ifindex = static_cast<int>(*index);
        neighbour->ndm_state = NUD_NOARP | NUD_PERMANENT;
        neighbour->ndm_flags = NTF_SELF;
        const Mac address = mac.value_or(Mac{});
        mnl_attr_put(head, NDA_LLADDR, address.size(), address.data());
        mnl_attr_put_u32(head, NDA_DST, htonl(host));
    });
}

Expected<void> Links::move(const std::string &name, int home, const std::string &new_name) {
    auto index = index_of(name);
    if (!index)
        return propagate(index);
    return ask("move the interface", name, [&](nlmsghdr *head) {
        link_header(head, RTM_NEWLINK, 0)->ifi_index = static_cast<int>(*index);
        mnl_attr_put_u32(head, IFLA_NET_NS_FD, static_cast<std::uint32_t>(home));
        mnl_attr_put_strz(head, IFLA_IFNAME, new_name.c_str());
    });
}

Expected<void> Links::change(const std::string &name, const Change &change) {
    auto index = index_of(name);
    if (!index)
        return propagate(index);
    std::optional<std::uint32_t> bridge;
    if (change.bridge) {
        auto found = index_of(*change.bridge);
        if (!found)
            return propagate(found);
        bridge = *found;
    }
    return ask("change the interface", name, [&](nlmsghdr *head) {
        ifinfomsg *const link = link_header(head, RTM_NEWLINK, 0);
        link->ifi_index = static_cast<int>(*index);
        if (change.up) {
            link->ifi_flags = IFF_UP;
            link->ifi_change = IFF_UP;
        }
        if (change.mtu)
            mnl_attr_put_u32(head, IFLA_MTU, *change.mtu);
        if (change.mac)
            mnl_attr_put(head, IFLA_ADDRESS, change.mac->size(), change.mac->data());
        if (bridge)
            mnl_attr_put_u32(head, IFLA_MASTER, *bridge);
    });
}

Expected<void> Links::change_port(const std::string &name, const Fill &fill) {
    auto index = index_of(name);
    if (!index)
        return propagate(index);
    return ask("change the port", name, [&](nlmsghdr *head) {
        ifinfomsg *const link = link_header(head, RTM_SETLINK, 0);
        link->ifi_family = PF_BRIDGE;
        link->ifi_index = static_cast<int>(*index);
        nlattr *const port =
            mnl_attr_nest_start(head, IFLA_PROTINFO); // with NLA_F_NESTED, as the kernel asks
        fill(head);
        mnl_attr_nest_end(head, port);
    });
}

Expected<void> Links::set_port(const std::string &name, PortState state) {
    return change_port(name, [state](nlmsghdr *head) {
        mnl_attr_put_u8(head, IFLA_BRPORT_STATE, static_cast<std::uint8_t>(state));
    });
}

Expected<void> Links::isolate_port(const std::string &name, bool isolated) {
    return change_port(
        name, [isolated](nlmsghdr *head) { mnl_attr_put_u8(head, IFLA_BRPORT_ISOLATED, isolated ? 1 : 0); });
}

} // namespace singularity::network
