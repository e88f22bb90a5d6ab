// SPDX-License-Identifier: GPL-2.0-or-later
// Which daemons this process talks to: SINGULARITY_PROXY_SOCKETS, and CUDA_VISIBLE_DEVICES over it.
#pragma once

#include "common/error.hpp"
#include "proxy/channel/packet.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::client {

// In ordinal order; an error if the variable is not set.
[[nodiscard]] Expected<std::vector<std::string>> configured_sockets();

// Which of so many devices CUDA_VISIBLE_DEVICES chooses, in its order: indices, "GPU-" and a UUID or its
// beginning. The list ends at the first entry that is not valid, as in CUDA. `text`: nullptr if the variable
// is not set. uuid_of: asked only where there are UUIDs; 16 bytes.
using UuidOf = std::function<std::array<std::uint8_t, 16>(std::size_t device)>;
[[nodiscard]] std::vector<std::size_t> choose_visible(const char *text, std::size_t devices,
                                                      const UuidOf &uuid_of);

struct VisibleDevice {
    std::string socket;
    channel::NodeDevice device; // its place among all that are configured
};
[[nodiscard]] Expected<std::vector<VisibleDevice>>
visible_devices(const Expected<std::vector<std::string>> &sockets);

} // namespace singularity::client
