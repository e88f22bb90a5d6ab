// SPDX-License-Identifier: GPL-2.0-or-later
// What a call has to come after: whether it may be carried out while streams wait for collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace singularity::proxyd {

struct CallOrder {
    enum class Kind : std::uint8_t {
        everything,  // or nobody knows
        nothing,     // of what is on the device
        streams,     // it asks about streams, or waits for them
        its_stream,  // it works with memory, in a stream
        marks,       // it records an event in a stream
        event,       // it lets a stream wait for an event
        collectives, // it issues some, in a stream
    };
    Kind kind = Kind::everything;
    std::uint64_t stream = 0;       // the client's handle
    std::uint64_t event = 0;        // likewise
    std::uint64_t communicator = 0; // its number
};

// message: a request, whole; of one whose id says that it has data, nothing.
[[nodiscard]] CallOrder order_of(std::uint32_t id, std::span<const std::byte> message);

} // namespace singularity::proxyd
