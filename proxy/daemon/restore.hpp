// SPDX-License-Identifier: GPL-2.0-or-later
// Sessions from device images. An image is a user's: nothing in it is believed, and what is wrong with it is
// said by the number of the record.
#pragma once

#include "common/error.hpp"
#include "proxy/channel/packet.hpp"
#include "proxy/image/reader.hpp"
#include "session.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace singularity::proxyd {

struct Restored {
    channel::ClientKey client;
    std::shared_ptr<Session> session;
    std::int32_t pid = 0; // in its PID namespace
    std::uint64_t content_bytes = 0;
};

// Makes a session without a client, with this geometry; see Daemon.
using MakeSession = std::function<Expected<std::shared_ptr<Session>>(const ClientPlace &client,
                                                                     const channel::Geometry &geometry)>;

// Asked when there is something to restore.
using OpenDevice = std::function<Expected<const BackEnd *>()>;

// All sessions of a stream, or an error; then those that were made already are in `restored`, to be ended.
[[nodiscard]] Expected<void> restore_sessions(image::Reader &reader, const OpenDevice &device,
                                              std::uint64_t window_size, const MakeSession &make,
                                              std::vector<Restored> &restored);

} // namespace singularity::proxyd
