// SPDX-License-Identifier: GPL-2.0-or-later
// What a host says that has received a datagram for a port at which nobody listens ("port unreachable", RFC
// 792), said by root of the host to a socket of the network namespace that the calling thread is in. A
// connected UDP socket reads ECONNREFUSED from that, once, and stays connected.
#pragma once

#include "common/error.hpp"

#include <cstdint>

#include <netinet/in.h>

namespace singularity::network {

struct DatagramEnds { // in network byte order
    std::uint32_t own = 0;
    std::uint32_t peer = 0;
    std::uint16_t own_port = 0;
    std::uint16_t peer_port = 0;
};

struct Datagram6Ends { // likewise
    in6_addr own{};
    in6_addr peer{};
    std::uint16_t own_port = 0;
    std::uint16_t peer_port = 0;
};

[[nodiscard]] Expected<void> say_unreachable(const DatagramEnds &socket);
[[nodiscard]] Expected<void> say_unreachable(const Datagram6Ends &socket); // RFC 4443

} // namespace singularity::network
