// SPDX-License-Identifier: GPL-2.0-or-later
// The network of one job on this host, as the process that holds it has it: a network namespace of its own
// with a bridge, the nodes' links, and a VXLAN interface to the job's other hosts. The kernel takes all of it
// away when the process ends. One thread; the calling thread stays in the new namespace.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/name_space.hpp"
#include "common/unique_fd.hpp"
#include "firewall.hpp"
#include "gateway.hpp"
#include "links.hpp"
#include "name_relay.hpp"
#include "plan.hpp"
#include "sockets_of_node.hpp"
#include "way_in.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace singularity::network {

class JobNetwork {
  public:
    // The network exists, without anybody in it, and the host is closed to whoever would write to it.
    [[nodiscard]] static Expected<JobNetwork> make(const Prepare &plan);

    [[nodiscard]] std::uint32_t mtu() const { return mtu_; } // the most that connect() may be told
    // From then on the other hosts' nodes are reached. When all hosts have been made.
    [[nodiscard]] Expected<void> connect(const Connect &plan);
    [[nodiscard]] bool connected() const { return connected_; }
    // home: the node's network namespace, whose `uplink` becomes a port of the bridge.
    [[nodiscard]] Expected<void> attach(std::uint32_t node, UniqueFd home);
    [[nodiscard]] bool shared() const { return plan_.shared; }
    // Of a node that is attached; or null.
    [[nodiscard]] const UniqueFd *home_of(std::uint32_t node) const;
    // That a node of this number has.
    [[nodiscard]] std::uint32_t address(std::uint32_t node) const { return address_of(plan_.vni, node); }
    // What an owner has at the node is not reached any more.
    void close_way_in(std::uint32_t node, const std::string &owner);
    // The node has ended: its link is gone with its namespace.
    void forget(std::uint32_t node);
    [[nodiscard]] std::vector<std::uint32_t> nodes() const;

    // Ports of a node that is attached are reached from outside, until it ends.
    [[nodiscard]] Expected<std::vector<Published>> publish(const Publish &plan);

    // Nodes ask for names of hosts: there is something to do when one of these is readable, or the deadline
    // has passed.
    void watch(std::vector<int> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    void work();

    // Closed: no packet passes between two nodes or hosts. What has been sent and not arrived is lost, as in
    // any network; a TCP connection sends it again when the network is open: when all owners that have cut it
    // have opened it.
    [[nodiscard]] Expected<void> set_cut(bool cut, const std::string &owner);
    [[nodiscard]] bool is_cut() const { return !cut_by_.empty(); }
    // The nodes are about to end, and may stand still, as after their checkpoint. Whoever is connected with
    // them from outside of the job hears that they are gone. Between nodes nothing passes from now on.
    [[nodiscard]] Expected<void> release();
    // The same of one owner's, in a network that is shared; what the others have goes on. Between nodes
    // nothing passes until the network is open again.
    struct OwnedNode {
        std::uint32_t node = 0;
        int init = -1; // its pidfd
    };
    [[nodiscard]] Expected<void> release(const std::string &owner, const std::vector<OwnedNode> &nodes);

  private:
    JobNetwork(Prepare plan, Links host, Links own, Firewall firewall, UniqueFd home,
               std::shared_ptr<const NameSpace> host_home, std::optional<Gateway> gateway, std::uint32_t mtu)
        : plan_(std::move(plan)), host_(std::move(host)), own_(std::move(own)),
          firewall_(std::move(firewall)), home_(std::move(home)), host_home_(std::move(host_home)),
          gateway_(std::move(gateway)), mtu_(mtu) {}
    [[nodiscard]] Expected<void> add_port(const std::string &name, std::uint32_t mtu);
    [[nodiscard]] Expected<void> set_ports();
    // In the node's namespace. Without a way out it has no default route.
    [[nodiscard]] Expected<void> show_way_out(Links &in_node) const;

    struct Node {
        std::string port;
        UniqueFd fd;
        NameSpace home; // the same
        std::optional<NameRelay> names;
    };
    // Nothing passes from it to another node; all of it reaches the outside.
    [[nodiscard]] Expected<void> isolate(const std::string &port);
    // of: as of reset_connections().
    [[nodiscard]] Expected<void> reset_outside(std::uint32_t number, const Node &node,
                                               const Sockets *of) const;
    // None: no name server is at the host's loopback, or the node does without.
    [[nodiscard]] std::optional<NameRelay> relay_names(const NameSpace &node) const;

    Prepare plan_;
    Links host_; // where VXLAN's packets leave
    Links own_;
    Firewall firewall_;
    UniqueFd home_; // our own namespace
    std::shared_ptr<const NameSpace> host_home_;
    std::optional<Gateway> gateway_;
    std::optional<WayIn> way_in_; // once something is published
    std::uint32_t mtu_;
    bool connected_ = false;
    bool isolated_ = false;
    std::set<std::string> cut_by_;        // owners
    std::map<std::uint32_t, Node> nodes_; // by number
    std::vector<std::string> ports_;
};

} // namespace singularity::network
