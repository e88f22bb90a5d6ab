// SPDX-License-Identifier: GPL-2.0-or-later
// The handlers of the hand-written messages by id, behind one signature: decode, handle, answer.
#pragma once

#include "call.hpp"
#include "proxy/protocol/ids.hpp"

#include <cstddef>
#include <span>

namespace singularity::proxyd {

struct MessageRow {
    const char *name = nullptr;
    // An error: the message is broken. The Call says what else became of it.
    Expected<void> (*handle)(Call &call, std::span<const std::byte> message) = nullptr;
    bool replies = false;
    bool waits = false;         // always for a worker
    bool uses_memory = false;   // with the session's turn at the device, also on a worker
    bool payload = false;       // one buffer that is nothing but data: may be used where it lies in the ring
    bool relays_output = false; // what the device has printed comes out with it
};

// nullptr: there is no such message.
[[nodiscard]] const MessageRow *message_row(std::uint32_t id);

} // namespace singularity::proxyd
