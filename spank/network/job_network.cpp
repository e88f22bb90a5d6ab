// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_network.hpp"

#include "common/deadline.hpp"
#include "common/name_space.hpp"
#include "common/node_address.hpp"
#include "common/trusted_file.hpp"
#include "log.hpp"
#include "lost_connections.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

namespace singularity::network {

namespace {

constexpr const char *kBridge = "bridge";
constexpr const char *kVxlan = "vxlan";
constexpr const char *kUplink = "uplink"; // in a node: ../node/network.hpp
constexpr std::chrono::seconds kOldPatience{10};
constexpr std::uint32_t kAlone = 1500; // with nobody on another host
constexpr const char *kResolvers = "/etc/resolv.conf";
constexpr std::size_t kResolversSize = 65536;

// That the way to the host has, as the kernel's routes say.
Expected<std::uint32_t> mtu_to(std::uint32_t host) {
    const auto name =
        fmt::format("{}.{}.{}.{}", host >> 24, host >> 16 & 0xff, host >> 8 & 0xff, host & 0xff);
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(9); // nothing is sent
    to.sin_addr.s_addr = htonl(host);
    int mtu = 0;
    socklen_t size = sizeof(mtu);
    if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr *>(&to), sizeof(to)) != 0 ||
        getsockopt(socket.get(), IPPROTO_IP, IP_MTU, &mtu, &size) != 0)
        return std::unexpected(errno_error("find the way to", name));
    if (std::cmp_less(mtu, kLeastMtu + kOverhead))
        return failure("use the way to", name, fmt::format("its MTU of {} is too small", mtu), EMSGSIZE);
    return static_cast<std::uint32_t>(mtu);
}

// The bridge itself speaks to nobody: without IPv6 nothing of it has an address.
void switch_off_ipv6() {
    for (const char *const which : {"default", "all"}) {
        const auto path = fmt::format("/proc/sys/net/ipv6/conf/{}/disable_ipv6", which);
        auto file = open_file(path, O_WRONLY);
        if (file && write(file->get(), "1", 1) == 1)
            continue;
        if (errno != ENOENT) // no IPv6 at all
            kLog.warning("{}: its links have link-local addresses, which nobody uses",
                         errno_error("write", path).message());
    }
}

} // namespace

Expected<JobNetwork> JobNetwork::make(const Prepare &plan) {
    if (auto checked = check(plan); !checked)
        return propagate(checked);
    std::uint32_t mtu = kAlone + kOverhead;
    for (bool first = true; const auto to : plan.hosts) {
        auto found = mtu_to(to);
        if (!found)
            return propagate(found);
        mtu = first ? *found : std::min(mtu, *found);
        first = false;
    }
    auto firewall = Firewall::make(plan);
    if (!firewall)
        return propagate(firewall);
    auto host = Links::open();
    if (!host)
        return propagate(host);
    auto host_rules = Nft::open();
    if (!host_rules)
        return propagate(host_rules);
    const auto host_home = open_file("/proc/thread-self/ns/net", O_RDONLY);
    if (!host_home)
        return std::unexpected(host_home.error());
    auto host_names = NameSpace::current(NameSpaceKind::kNetwork);
    if (!host_names)
        return propagate(host_names);
    const bool host_ipv6 = forwards_ipv6() && host_has_ipv6();
    if (unshare(CLONE_NEWNET) != 0)
        return std::unexpected(errno_error("make", "a network namespace"));
    switch_off_ipv6();
    auto home = open_file("/proc/thread-self/ns/net", O_RDONLY);
    if (!home)
        return propagate(home);
    auto own = Links::open();
    if (!own)
        return propagate(own);
    if (auto made = own->make_bridge(kBridge); !made)
        return propagate(made);
    if (auto up = own->change(kBridge, {.mtu = {}, .mac = {}, .bridge = {}, .up = true}); !up)
        return propagate(up);
    std::optional<Gateway> gateway;
    if (plan.way_out.outside.open() || plan.way_in) {
        auto made = Gateway::make(plan, {.host = &*host,
                                         .host_rules = std::move(*host_rules),
                                         .host_home = host_home->get(),
                                         .own = &*own,
                                         .bridge = kBridge,
                                         .host_ipv6 = host_ipv6});
        if (made)
            gateway = std::move(*made);
        else // the job can do without, and its programs see at once that there is none
            kLog.error("{}: the job's programs reach nothing outside of it, and nobody reaches them",
                       made.error().message());
    }
    return JobNetwork(plan, std::move(*host), std::move(*own), std::move(*firewall), std::move(*home),
                      std::make_shared<const NameSpace>(std::move(*host_names)), std::move(gateway),
                      mtu - kOverhead);
}

Expected<void> JobNetwork::add_port(const std::string &name, std::uint32_t mtu) {
    if (auto changed = own_.change(name, {.mtu = mtu, .mac = {}, .bridge = kBridge, .up = true}); !changed)
        return changed;
    ports_.push_back(name);
    return is_cut() ? own_.set_port(name, PortState::closed) : Expected<void>();
}

Expected<void> JobNetwork::connect(const Connect &plan) {
    if (connected_ && !plan_.shared)
        return failure("connect", "the network", "it is connected already", EALREADY);
    if (auto checked = check(plan, plan_); !checked)
        return checked;
    if (connected_) // on this host alone, there is nothing to add
        return {};
    if (plan.mtu > mtu_)
        return failure("connect", "the network", fmt::format("an MTU of {} is above {}", plan.mtu, mtu_),
                       EINVAL);
    mtu_ = plan.mtu;
    connected_ = true;
    if (plan_.hosts.empty())
        return {};
    // The kernel takes its time to remove that of a process that has just ended, which had the same network.
    Expected<void> made;
    const auto settled = [&] {
        made = host_.make_vxlan({.name = kVxlan,
                                 .vni = plan_.vni,
                                 .port = plan_.port,
                                 .local = plan_.local,
                                 .mtu = mtu_,
                                 .home = home_.get()});
        return made || made.error().code != EEXIST;
    };
    static_cast<void>(wait_until(settled, Deadline::after(kOldPatience), "an older network to be gone"));
    if (!made)
        return made;
    for (const auto to : plan_.hosts)
        if (auto told = own_.send_to(kVxlan, std::nullopt, to); !told)
            return told;
    for (const auto &remote : plan.remotes)
        if (auto told = own_.send_to(kVxlan, mac_of(plan_.vni, remote.node), remote.host); !told)
            return told;
    if (auto added = add_port(kVxlan, mtu_); !added)
        return added;
    return firewall_.admit(plan_.hosts);
}

Expected<void> JobNetwork::attach(std::uint32_t node, UniqueFd home) {
    const auto name = fmt::format("node{}", node);
    if (node == 0 || node > kNodeLimit || nodes_.contains(node))
        return failure("connect", name, "there is no such number, or it is connected already", EEXIST);
    if (!connected_)
        return failure("connect", name, "the network itself is not connected yet", EAGAIN);
    auto there = NameSpace::open(fmt::format("/proc/self/fd/{}", home.get()), NameSpaceKind::kNetwork);
    if (!there)
        return propagate(there);
    {
        auto visit = NameSpaceVisit::to(*there);
        if (!visit)
            return propagate(visit);
        auto links = Links::open();
        if (!links)
            return propagate(links);
        if (auto changed = links->change(
                kInNode, {.mtu = mtu_, .mac = mac_of(plan_.vni, node), .bridge = {}, .up = true});
            !changed)
            return changed;
        if (auto shown = show_way_out(*links); !shown)
            return shown;
        if (auto moved = links->move(kUplink, home_.get(), name); !moved)
            return moved;
    }
    if (auto added = add_port(name, mtu_); !added)
        return added;
    auto names = relay_names(*there);
    nodes_.emplace(
        node,
        Node{.port = name, .fd = std::move(home), .home = std::move(*there), .names = std::move(names)});
    if (!gateway_)
        return {};
    const auto address = address_of(plan_.vni, node);
    const auto lead = [&](const IpAddress &to) {
        auto led = own_.add_route(
            kBridge, {.to = to, .prefix = static_cast<std::uint32_t>(8 * to.size()), .gateway = {}});
        return led ? own_.add_neighbour(kBridge, to, mac_of(plan_.vni, node)) : led;
    };
    if (auto led = lead(address); !led)
        return led;
    return gateway_->ipv6() ? lead(ipv6_of(address)) : Expected<void>();
}

Expected<std::vector<Published>> JobNetwork::publish(const Publish &plan) {
    const auto name = fmt::format("ports of node {}", plan.node);
    if (!nodes_.contains(plan.node))
        return failure("publish", name, "it is not connected", ENOENT);
    if (!gateway_)
        return failure("publish", name,
                       "the job's network has no way to its host (does the kernel have nf_nat?)",
                       ENETUNREACH);
    if (!way_in_) {
        auto made = WayIn::make({.host_rules = gateway_->host_rules(),
                                 .host_end = gateway_->host_end(),
                                 .job_address = gateway_->job_address(),
                                 .host_home = host_home_});
        if (!made)
            return propagate(made);
        way_in_ = std::move(*made);
    }
    return way_in_->publish(plan, address_of(plan_.vni, plan.node));
}

const UniqueFd *JobNetwork::home_of(std::uint32_t node) const {
    const auto found = nodes_.find(node);
    return found == nodes_.end() ? nullptr : &found->second.fd;
}

void JobNetwork::close_way_in(std::uint32_t node, const std::string &owner) {
    if (way_in_)
        if (auto closed = way_in_->close(node, owner); !closed) // its ports stay taken
            kLog.error("{}", closed.error().message());
}

std::optional<NameRelay> JobNetwork::relay_names(const NameSpace &node) const {
    if (!gateway_)
        return std::nullopt;
    auto file = open_file(kResolvers, O_RDONLY | O_NONBLOCK);
    auto text = file ? read_to_end(*file, kResolvers, kResolversSize) : propagate(file);
    if (!text) {
        if (text.error().code != ENOENT)
            kLog.error("{}: programs may not find names of hosts", text.error().message());
        return std::nullopt;
    }
    const auto servers = allowed_servers(loopback_servers(*text), plan_.way_out.outside);
    if (servers.empty())
        return std::nullopt;
    auto relay = NameRelay::make(node, host_home_, servers);
    if (relay)
        return std::move(*relay);
    kLog.error("{}: programs may not find names of hosts", relay.error().message());
    return std::nullopt;
}

void JobNetwork::watch(std::vector<int> &fds) const {
    for (const auto &[number, node] : nodes_)
        if (const auto &names = node.names)
            fds.push_back(names->fd());
}

std::optional<Deadline> JobNetwork::next_deadline() const {
    std::optional<Deadline> out;
    for (const auto &[number, node] : nodes_) {
        const auto &names = node.names;
        const auto one = names ? names->next_deadline() : std::nullopt;
        if (one && (!out || one->when() < out->when()))
            out = one;
    }
    return out;
}

void JobNetwork::work() {
    for (auto &[number, node] : nodes_)
        if (auto &names = node.names)
            names->work();
}

Expected<void> JobNetwork::show_way_out(Links &in_node) const {
    const auto gateway = network_of(plan_.vni) | kGateway;
    const auto show = [&](const IpAddress &by, const IpAddress &any, bool there) -> Expected<void> {
        const Links::Route everything{.to = any, .prefix = 0, .gateway = by};
        if (there) {
            auto led = in_node.add_route(kInNode, everything);
            return led ? in_node.add_neighbour(kInNode, by, kGatewayMac) : led;
        }
        auto removed = in_node.remove_route(kInNode, everything);
        // ENETUNREACH, EAFNOSUPPORT: the node has no IPv6 at all.
        return removed || removed.error().code == ESRCH || removed.error().code == ENETUNREACH ||
                       removed.error().code == EAFNOSUPPORT || removed.error().code == EOPNOTSUPP
                   ? Expected<void>()
                   : removed;
    };
    if (auto shown = show(gateway, IpAddress(), gateway_.has_value()); !shown)
        return shown;
    return show(ipv6_of(gateway), in6_addr{}, gateway_ && gateway_->ipv6());
}

void JobNetwork::forget(std::uint32_t node) {
    if (const auto found = nodes_.find(node); found != nodes_.end()) {
        std::erase(ports_, found->second.port);
        nodes_.erase(found);
    }
}

std::vector<std::uint32_t> JobNetwork::nodes() const {
    std::vector<std::uint32_t> out;
    for (const auto &[node, name] : nodes_)
        out.push_back(node);
    return out;
}

Expected<void> JobNetwork::set_cut(bool cut, const std::string &owner) {
    if (cut)
        cut_by_.insert(owner);
    else
        cut_by_.erase(owner);
    return set_ports();
}

Expected<void> JobNetwork::set_ports() {
    const bool joins = isolated_ && !is_cut() && plan_.shared;
    for (const auto &port : ports_) {
        auto set = joins ? own_.isolate_port(port, false) : Expected<void>();
        if (set)
            set = own_.set_port(port, is_cut() ? PortState::closed : PortState::forwards);
        // A node that has just ended has no port any more.
        if (!set && set.error().code != ENODEV)
            return set;
    }
    isolated_ = isolated_ && !joins;
    return {};
}

namespace {

// The first of several, all of which are tried. A node that has just ended has no port any more.
class FirstError {
  public:
    void take(const Expected<void> &done) {
        if (!done && done.error().code != ENODEV && first_)
            first_ = done;
    }
    [[nodiscard]] const Expected<void> &first() const { return first_; }

  private:
    Expected<void> first_;
};

} // namespace

Expected<void> JobNetwork::isolate(const std::string &port) {
    auto isolated = own_.isolate_port(port);
    return isolated ? own_.set_port(port, PortState::forwards) : isolated;
}

Expected<void> JobNetwork::reset_outside(std::uint32_t number, const Node &node, const Sockets *of) const {
    auto visit = NameSpaceVisit::to(node.home);
    if (!visit)
        return propagate(visit);
    auto reset = reset_connections({.address = address_of(plan_.vni, number), .prefix = kPrefix}, of);
    return reset ? Expected<void>() : propagate(reset);
}

Expected<void> JobNetwork::release(const std::string &owner, const std::vector<OwnedNode> &nodes) {
    if (!gateway_)
        return {};
    FirstError out;
    isolated_ = true;
    for (const auto &port : ports_)
        out.take(isolate(port));
    for (const auto &one : nodes) {
        close_way_in(one.node, owner);
        const auto found = nodes_.find(one.node);
        if (found == nodes_.end())
            continue;
        auto held = sockets_of_node(one.init);
        out.take(held ? reset_outside(one.node, found->second, &*held) : propagate(held));
    }
    return out.first();
}

Expected<void> JobNetwork::release() {
    if (!gateway_)
        return {};
    FirstError out;
    if (way_in_)
        out.take(way_in_->close_all());
    if (connected_ && !plan_.hosts.empty())
        out.take(own_.set_port(kVxlan, PortState::closed));
    for (const auto &[number, node] : nodes_) {
        out.take(isolate(node.port));
        out.take(reset_outside(number, node, nullptr));
    }
    return out.first();
}

} // namespace singularity::network
