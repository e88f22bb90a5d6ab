// SPDX-License-Identifier: GPL-2.0-or-later
// The connections over IP that an image holds.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/reader.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <netinet/in.h>

namespace singularity::host {

struct SavedConnection {
    std::uint8_t protocol = 0; // IPPROTO_TCP, or IPPROTO_UDP of a socket that is connected
    in6_addr own{};            // one of IPv4 as it is mapped into IPv6
    in6_addr peer{};
    std::uint16_t own_port = 0; // in host byte order
    std::uint16_t peer_port = 0;
};

// Of the image in the directory `images`: those that have, or had, another end.
[[nodiscard]] Expected<std::vector<SavedConnection>> saved_connections(int images);

// Those of all other nodes of a checkpoint. Their images come into the directory on the way.
[[nodiscard]] Expected<std::vector<SavedConnection>>
saved_connections_of_others(const store::Checkpoint &checkpoint, const std::string &node, int images);

} // namespace singularity::host
