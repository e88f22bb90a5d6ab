// SPDX-License-Identifier: GPL-2.0-or-later
// What is numbered in a job's network, and how: the same on every host.
#pragma once

#include "common/error.hpp"
#include "common/outside.hpp"
#include "common/port_range.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace singularity::network {

using Mac = std::array<std::uint8_t, 6>;

inline constexpr std::uint32_t kVniLimit = 1U << 24; // RFC 7348: 24 bits; 0 is not used
inline constexpr std::uint32_t kNodeLimit = 253;     // numbers 1 to 253 in a /24
inline constexpr std::uint32_t kHostLimit = 254;
inline constexpr std::uint32_t kPrefix = 24;
inline constexpr const char *kInNode = "eth0"; // a node's interface: ../node/network.hpp
// What VXLAN puts around a packet: IPv4 20, UDP 8, VXLAN 8, Ethernet 14.
inline constexpr std::uint32_t kOverhead = 50;
inline constexpr std::uint32_t kLeastMtu = 576;
inline constexpr std::uint32_t kMostMtu = 65535;

// On every host the nodes' way out is here, behind a MAC that they are told.
inline constexpr std::uint32_t kGateway = 254;
inline constexpr Mac kGatewayMac{0x02, 0x53, 0, 0, 0, kGateway}; // mac_of() makes none of network 0

// A node keeps address and MAC wherever it runs: what others know of it stays right. host byte order.
[[nodiscard]] std::uint32_t network_of(std::uint32_t vni); // its first address
// So many networks have the same addresses; in a host they are apart.
inline constexpr std::uint32_t kNetworksOfAddress = 1U << 10;
inline constexpr std::uint32_t kAddressesOfJobs = kVniLimit / kNetworksOfAddress; // networks of addresses
// The vni, of those, whose addresses are those of a job of Slurm's: `which` of them, modulo their number.
[[nodiscard]] std::uint32_t with_addresses_of(std::uint32_t job, std::uint32_t which);
[[nodiscard]] std::uint32_t address_of(std::uint32_t vni, std::uint32_t node);
[[nodiscard]] Mac mac_of(std::uint32_t vni, std::uint32_t node);

// A node of the job on another host.
struct Remote {
    std::uint32_t node = 0;
    std::uint32_t host = 0; // its IPv4 address, in host byte order
    static void fields(auto &self, auto &visit) { visit(self.node, self.host); }
};

// The way to the world outside of the job.
struct WayOut {
    Outside outside;          // where it may lead
    std::uint16_t agents = 0; // TCP port of all hosts' agents, which stay out of reach
    static void fields(auto &self, auto &visit) {
        self.outside.fields(self.outside, visit);
        visit(self.agents);
    }
};

// A port of a node that is reached from outside, and at which port of the host.
struct Published {
    std::uint16_t port = 0;
    std::uint16_t at = 0;
    static void fields(auto &self, auto &visit) { visit(self.port, self.at); }
};

// What of a node is to be reached from outside.
struct Publish {
    std::uint32_t node = 0;
    std::vector<std::uint16_t> ports;
    PortRange range;   // of the host
    std::string owner; // a step or a script, where several have the network (messages.hpp)
    static void fields(auto &self, auto &visit) { visit(self.node, self.ports, self.range, self.owner); }
};
inline constexpr std::size_t kPublishedLimit = 16; // of a node
[[nodiscard]] Expected<void> check(const Publish &plan);
// Of the range the port to try first for one of a node with this address: the same each time the job runs, so
// that whoever has been told of it mostly finds the node again.
[[nodiscard]] std::uint16_t first_choice(const PortRange &range, std::uint32_t address, std::uint16_t port);

struct Prepare {
    std::uint32_t vni = 0;
    std::uint16_t port = 0;           // UDP
    std::uint32_t local = 0;          // our address among the hosts
    std::vector<std::uint32_t> hosts; // the others'; none: the job is on this host only
    WayOut way_out = {};
    bool way_in = false; // ports of its nodes may be published
    // By several who each prepare it, on one host: it does not end with its nodes.
    bool shared = false;
};
[[nodiscard]] Expected<void> check(const Prepare &plan);

struct Connect {
    std::uint32_t mtu = 0; // of the nodes' interfaces
    std::vector<Remote> remotes;
};
[[nodiscard]] Expected<void> check(const Connect &plan, const Prepare &before);

} // namespace singularity::network
