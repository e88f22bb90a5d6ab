// SPDX-License-Identifier: GPL-2.0-or-later
// What device a proxy is for: asked over a connection of its own, without a session.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proxy/channel/packet.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace singularity::channel {

// Asks the proxy that listens there. Code EPROTO: it refuses, as it does to other users than its own and
// root.
[[nodiscard]] Expected<Identity> identify(const std::filesystem::path &socket, const Deadline &deadline);

// The devices of one process in its order. Where one of them comes again, which then is another virtual
// device, it gets another uuid and another PCI domain.
class DeviceList {
  public:
    [[nodiscard]] DeviceIdentity add(DeviceIdentity device);

  private:
    std::vector<std::array<std::uint8_t, 16>> uuids_;
};

// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as NVIDIA's tools write it.
[[nodiscard]] std::string uuid_text(const std::array<std::uint8_t, 16> &uuid);

} // namespace singularity::channel
