// SPDX-License-Identifier: GPL-2.0-or-later
// How many ports of this host lead to virtual nodes of each user (network.publish in singularity.yaml).
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace singularity::agent {

// A user's share that is taken as long as this lives. The agent's own, for its one thread.
class PublishedPorts {
  public:
    PublishedPorts() = default;
    // Error EDQUOT: it is more than Budget::ports.
    [[nodiscard]] static Expected<PublishedPorts> take(std::uint32_t uid, std::size_t ports);
    // The same for what is there already: whatever the user has.
    [[nodiscard]] static PublishedPorts count(std::uint32_t uid, std::size_t ports);
    PublishedPorts(PublishedPorts &&other) noexcept
        : uid_(other.uid_), ports_(std::exchange(other.ports_, 0)) {}
    PublishedPorts &operator=(PublishedPorts &&other) noexcept {
        std::swap(uid_, other.uid_);
        std::swap(ports_, other.ports_);
        return *this;
    }
    PublishedPorts(const PublishedPorts &) = delete;
    PublishedPorts &operator=(const PublishedPorts &) = delete;
    ~PublishedPorts();

  private:
    PublishedPorts(std::uint32_t uid, std::size_t ports) : uid_(uid), ports_(ports) {}

    std::uint32_t uid_ = 0;
    std::size_t ports_ = 0;
};

} // namespace singularity::agent
