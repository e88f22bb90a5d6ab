// SPDX-License-Identifier: GPL-2.0-or-later
// Where device proxies meet for the collectives of ranks on different devices (proxy/collectives): a
// listening socket that the first of them serves, and a secret that proves to each that the others belong to
// it. The agent makes the socket before any proxy starts: their connections wait in it.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace singularity::agent {

using RendezvousKey = std::array<std::byte, 32>;
[[nodiscard]] Expected<RendezvousKey> make_rendezvous_key();

struct Rendezvous {
    std::string place;   // unix:@NAME or tcp:HOST:PORT
    std::string address; // where proxies of other hosts reach these; empty: there are none
    std::string host;    // this one's name among them; empty: there are no others
    RendezvousKey key{};
    std::shared_ptr<UniqueFd> socket; // to be served by the first proxy; null: another serves it
};

// Among the proxies of one node, on this host.
[[nodiscard]] Expected<Rendezvous> rendezvous_here();

// A socket on a free port of an address of this host (IPv4, in host byte order), for a job on several hosts.
struct MeetingPoint {
    UniqueFd socket;
    std::uint16_t port = 0;
};
[[nodiscard]] Expected<MeetingPoint> make_meeting_point(std::uint32_t address);
// "tcp:10.0.0.1:4711"; port 0: any
[[nodiscard]] std::string tcp_address(std::uint32_t address, std::uint16_t port);

} // namespace singularity::agent
