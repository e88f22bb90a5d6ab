// SPDX-License-Identifier: GPL-2.0-or-later
// Device images of sessions whose clients have stopped and whose work is done.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "pause.hpp"
#include "proxy/image/writer.hpp"
#include "session.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace singularity::proxyd {

// Waits until everything that the session was told has been carried out.
[[nodiscard]] Expected<void> settle(Session &session, const PausedClient &client, const Deadline &deadline);

// What of the session cannot be in an image, in words; `soon`: it will be over (a capture that runs).
struct Obstacle {
    std::string what;
    bool soon = false;
};
[[nodiscard]] std::optional<Obstacle> obstacle(Session &session);

// Waits until the device is done with it. Nothing is captured. Never blocks in the driver: a kernel without
// an end is an error at the deadline.
[[nodiscard]] Expected<void> drain(Session &session, const Deadline &deadline);

struct Saved {
    std::uint64_t calls = 0;
    std::uint64_t memory_bytes = 0;  // that were looked at
    std::uint64_t content_bytes = 0; // of them not zero
    std::uint64_t code_bytes = 0;
};
// Writes the records of one session.
[[nodiscard]] Expected<Saved> save_session(Session &session, const PausedClient &client,
                                           image::Writer &writer);

} // namespace singularity::proxyd
