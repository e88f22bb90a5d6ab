// SPDX-License-Identifier: GPL-2.0-or-later
// What the agent and singularity-network say to each other (packets as in ../node/packet.hpp). Each request
// gets one reply with its token: the type named beside it, or Failed.
//
// A network may be shared: the script of a job and its steps have one node each at one number, and these have
// one network namespace. Its owners, a step or a script each, are told apart by a name; a network that is not
// shared has one owner.
#pragma once

#include "node/packet.hpp"
#include "plan.hpp"

namespace singularity::network {

enum class Message : std::uint16_t { // NOLINT(performance-enum-size): as on the wire
    prepare = 128,                   // -> prepared: the first; once, or once by each owner
    connect,                         // -> done: likewise
    attach,                          // -> done: with a node's network namespace and a pidfd of its init
    cut,                             // -> done: nothing passes any more
    open,                            // -> done: again, when all owners that have cut it have said so
    status,                          // -> state
    prepared,
    done,
    state,
    failed,
    end,     // -> done: the network is gone, and the process ends
    release, // -> done: an owner's nodes are about to end; who they were connected to outside is told
    publish, // -> published_ports: of a node that is attached
    published_ports,
    place, // -> done, with a network namespace: that of the nodes of a number, of a network that is shared
};

struct PrepareRequest {
    static constexpr auto kType = Message::prepare;
    Prepare plan;
    static void fields(auto &self, auto &visit) {
        visit(self.plan.vni, self.plan.port, self.plan.local, self.plan.hosts, self.plan.way_out,
              self.plan.way_in, self.plan.shared);
    }
};
struct ConnectRequest {
    static constexpr auto kType = Message::connect;
    Connect plan;
    static void fields(auto &self, auto &visit) { visit(self.plan.mtu, self.plan.remotes); }
};
struct AttachRequest {
    static constexpr auto kType = Message::attach;
    std::uint32_t node = 0; // its number
    std::string owner;
    static void fields(auto &self, auto &visit) { visit(self.node, self.owner); }
};
struct PlaceRequest {
    static constexpr auto kType = Message::place;
    std::uint32_t node = 0;
    std::uint32_t address = 0; // that it is to have, in host byte order
    static void fields(auto &self, auto &visit) { visit(self.node, self.address); }
};
struct CutRequest {
    static constexpr auto kType = Message::cut;
    std::string owner;
    static void fields(auto &self, auto &visit) { visit(self.owner); }
};
struct OpenRequest {
    static constexpr auto kType = Message::open;
    std::string owner;
    static void fields(auto &self, auto &visit) { visit(self.owner); }
};
// Once for each node.
struct PublishRequest {
    static constexpr auto kType = Message::publish;
    Publish plan;
    static void fields(auto &self, auto &visit) { visit(self.plan); }
};
struct PublishedPorts {
    static constexpr auto kType = Message::published_ports;
    std::vector<Published> ports;
    static void fields(auto &self, auto &visit) { visit(self.ports); }
};
struct ReleaseRequest {
    static constexpr auto kType = Message::release;
    std::string owner;
    static void fields(auto &self, auto &visit) { visit(self.owner); }
};
struct StatusRequest {
    static constexpr auto kType = Message::status;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct EndRequest {
    static constexpr auto kType = Message::end;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct Prepared {
    static constexpr auto kType = Message::prepared;
    std::uint32_t mtu = 0; // that the ways to all hosts have room for in a node's interface
    static void fields(auto &self, auto &visit) { visit(self.mtu); }
};
struct Done {
    static constexpr auto kType = Message::done;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct State {
    static constexpr auto kType = Message::state;
    bool prepared = false;
    bool connected = false;
    bool cut = false;
    std::vector<std::uint32_t> nodes; // attached, by number
    static void fields(auto &self, auto &visit) {
        visit(self.prepared, self.connected, self.cut, self.nodes);
    }
};
struct Failed {
    static constexpr auto kType = Message::failed;
    std::string doing;
    std::string on;
    std::string why;
    std::int32_t code = 0;
    static void fields(auto &self, auto &visit) { visit(self.doing, self.on, self.why, self.code); }
};

} // namespace singularity::network
