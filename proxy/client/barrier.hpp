// SPDX-License-Identifier: GPL-2.0-or-later
// This process's gate (proxy/barrier), and how daemons ask it: for the process as a whole, by any of its
// sessions. libnccl.so.2 enters it; without one it has nothing to say.
#pragma once

#include "proxy/barrier/gate.hpp"
#include "proxy/channel/packet.hpp"
#include "session.hpp"

#include <cstdint>

namespace singularity::client {

[[nodiscard]] barrier::Gate &gate();

// From the watcher: a thread of its own answers.
void barrier_arrived(Session &session, std::uint64_t ticket, channel::Packet packet);

} // namespace singularity::client
