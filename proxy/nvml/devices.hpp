// SPDX-License-Identifier: GPL-2.0-or-later
// What the proxies of this process are for: asked once, over a connection that is closed again.
#pragma once

#include "common/error.hpp"
#include "proxy/channel/packet.hpp"

#include <string>
#include <vector>

namespace singularity::nvml {

struct Device {
    std::string socket;
    channel::Identity identity;
    unsigned index = 0;

    [[nodiscard]] std::string uuid() const;   // "GPU-xxxxxxxx-xxxx-..."
    [[nodiscard]] std::string bus_id() const; // "00000000:01:00.0"
    [[nodiscard]] unsigned pci(unsigned attribute) const;
};

// Asks one proxy what it is, now.
[[nodiscard]] Expected<channel::Identity> identify(const std::string &socket);
// sockets: separated by colons, as in SINGULARITY_PROXY_SOCKETS.
[[nodiscard]] Expected<std::vector<Device>> find_devices(const std::string &sockets);

} // namespace singularity::nvml
