// SPDX-License-Identifier: GPL-2.0-or-later
// TCP connections of a node to the world outside of its job end when the node leaves its host: a restore
// brings the node's half back, and there is no other half. Both sides are told at once, by a reset. UDP
// sockets that are connected with somebody there are told once and stay connected: whoever waits for an
// answer asks again. All of this is about the network namespace that the calling thread is in.
#pragma once

#include "common/error.hpp"
#include "nft.hpp"

#include <cstddef>
#include <cstdint>

namespace singularity::network {

// What the node reaches without its way out; so does all that begins with 127, but for port 53 there: name
// servers are the host's (name_relay.hpp). Host byte order; the same goes for the IPv6 addresses that belong
// to these.
struct OwnNetwork {
    std::uint32_t address = 0;
    std::uint32_t prefix = 0;
};

// Of those that are made, both ends are told. The number of connections.
[[nodiscard]] Expected<std::size_t> reset_connections(const OwnNetwork &own);

// Before a restore. Each connection to the outside that comes back sends a packet, and gets a reset for it.
class LostConnections {
  public:
    [[nodiscard]] static Expected<LostConnections> expect(const OwnNetwork &own);
    // All have come back, and nothing runs yet. From now on packets leave the node again. Connections whose
    // state did not let them send anything are ended here: their programs read ECONNABORTED. Those of
    // connected UDP sockets read ECONNREFUSED.
    [[nodiscard]] Expected<void> done() const;

  private:
    LostConnections(Nft nft, OwnNetwork own) : nft_(std::move(nft)), own_(own) {}
    Nft nft_;
    OwnNetwork own_;
};

} // namespace singularity::network
