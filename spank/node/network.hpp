// SPDX-License-Identifier: GPL-2.0-or-later
// A node's network namespace. It is made apart from the node, so that a restore can have one as well.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstdint>
#include <string>

namespace singularity::node {

struct Address {
    std::uint32_t address = 0; // in network byte order
    std::uint32_t mask = 0;
};
// "10.88.0.1/16"
[[nodiscard]] Expected<Address> parse_address(const std::string &text);

// The last but one address of the network, whatever its length: what is not the network's goes there.
enum class DefaultRoute : bool { no, by_gateway };

// A new namespace: lo up, eth0 up with the address, and with the IPv6 address that goes with it
// (common/node_address.hpp), if the kernel has IPv6; eth0 is one end of a veth pair, the other is "uplink",
// up, in the same namespace. Who is sent to but not there yet is waited for. The calling thread is in its own
// namespace again when it returns. Needs CAP_NET_ADMIN and CAP_SYS_ADMIN.
[[nodiscard]] Expected<UniqueFd> make_network_namespace(const std::string &address, DefaultRoute route);

} // namespace singularity::node
