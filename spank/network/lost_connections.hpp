// SPDX-License-Identifier: GPL-2.0-or-later
// TCP connections of a node to the world outside of its job end when the node leaves its host: a restore
// brings the node's half back, and there is no other half. Both sides are told at once, by a reset. UDP
// sockets that are connected with somebody there are told once and stay connected: whoever waits for an
// answer asks again. All of this is about the network namespace that the calling thread is in.
#pragma once

#include "common/error.hpp"
#include "nft.hpp"
#include "sockets_of_node.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <netinet/in.h>

namespace singularity::network {

// What the node reaches without its way out; so does all that begins with 127, but for port 53 there: name
// servers are the host's (name_relay.hpp). Host byte order; the same goes for the IPv6 addresses that belong
// to these.
struct OwnNetwork {
    std::uint32_t address = 0;
    std::uint32_t prefix = 0;
};

// Of those that are made, both ends are told. The number of connections. of: only of these sockets; null: of
// all that there are.
[[nodiscard]] Expected<std::size_t> reset_connections(const OwnNetwork &own, const Sockets *of = nullptr);

// One socket's. IPv4 is mapped into IPv6; ports are in host byte order.
struct Connection {
    in6_addr own{};
    in6_addr peer{};
    std::uint16_t own_port = 0;
    std::uint16_t peer_port = 0;
};
[[nodiscard]] bool operator<(const Connection &one, const Connection &other);

// What a node that is restored brings into a network namespace in which others are.
struct Brought {
    std::set<Connection> streams;   // TCP connections whose other end is not restored with them
    std::set<Connection> datagrams; // connected UDP sockets
};

// Before a restore. Each connection to the outside that comes back sends a packet, and gets a reset for it.
class LostConnections {
  public:
    // All that the network namespace has belongs to the node.
    [[nodiscard]] static Expected<LostConnections> expect(const OwnNetwork &own);
    [[nodiscard]] static Expected<LostConnections> expect(const OwnNetwork &own, Brought brought);
    // All have come back, and none has sent anything yet: the host's own way out is all that there is.
    void before_they_send() { way_.clear(); }
    // They have, and nothing runs yet. From now on packets leave the node again. Connections whose
    // state did not let them send anything are ended here: their programs read ECONNABORTED. Those of
    // connected UDP sockets read ECONNREFUSED.
    [[nodiscard]] Expected<void> done() const;

  private:
    LostConnections(Nft nft, OwnNetwork own, std::optional<Brought> brought)
        : nft_(std::move(nft)), own_(own), brought_(std::move(brought)) {}
    Nft nft_;
    OwnNetwork own_;
    std::optional<Brought> brought_; // nothing: the node's is all that is there
    // Without a route a connection to the outside cannot come back at all, and a network that others are in
    // has none where its host has no way out. Each is gone with the object.
    std::vector<std::shared_ptr<void>> way_;
};

} // namespace singularity::network
