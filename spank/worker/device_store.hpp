// SPDX-License-Identifier: GPL-2.0-or-later
// Device images between the streams that proxies write and read and the checkpoint store.
//
// In the store an image is two: "records", the records of one virtual device's clients without what only
// holds for one stream (number, check sum, the records around the clients), and "content", the memory's bytes
// alone, cut where memory begins: so equal memory is stored once, whatever the records around it are.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "criu-hooks/store/reader.hpp"
#include "criu-hooks/store/writer.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace singularity::worker {

using GoOn = std::function<Expected<void>(std::uint64_t bytes)>;

// Which of a proxy's clients: those of one virtual device. The proxy serves every `proxies`-th from `device`
// modulo `proxies`, of `devices`.
struct DeviceShare {
    std::uint32_t device = 0;
    std::uint32_t devices = 1;
    std::uint32_t proxies = 1;
    // Of a client that says it is of a device that its proxy does not serve, since it has got there by
    // sockets that somebody has chosen for it: the first that the proxy does. Nobody's memory is left out.
    [[nodiscard]] bool has(std::uint32_t said) const {
        const auto first = device % proxies;
        return (said < devices && said % proxies == first ? said : first) == device;
    }
};

// The share's clients of a proxy's stream; the others are left out.
[[nodiscard]] Expected<void> store_device(int stream, const DeviceShare &share, store::Writer &writer,
                                          const std::string &node, const Deadline &deadline,
                                          const GoOn &go_on);

// A stream that a proxy takes.
[[nodiscard]] Expected<void> load_device(const store::Checkpoint &checkpoint, const std::string &node,
                                         std::uint32_t device, int stream, const Deadline &deadline,
                                         const GoOn &go_on);

// What a virtual device is called in the manifest.
[[nodiscard]] std::string device_name(std::uint32_t device);

} // namespace singularity::worker
