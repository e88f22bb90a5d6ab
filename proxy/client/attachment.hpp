// SPDX-License-Identifier: GPL-2.0-or-later
// What a client does for device images: it stops in front of its next calls, goes on, or lets go of a daemon
// and waits for the one where its image is restored. A thread of its own does it, which begins with the first
// such packet; the watcher hands packets over and never waits.
//
// Shared host memory stays in its memfds, at its addresses, with its content: while a session is detached
// nobody but this process has them, and the next daemon gets the same ones. (Copied into private memory and
// back, what the program's threads write in the meantime would be lost.)
#pragma once

#include "proxy/channel/client_end.hpp"
#include "proxy/channel/packet.hpp"
#include "proxy/libcuda/cuda.hpp"
#include "session.hpp"

#include <chrono>
#include <cstdint>
#include <optional>

namespace singularity::client {

// From the watcher.
void pause_arrived(Session &session, std::uint64_t ticket, const channel::Packet &packet);
void resume_arrived(Session &session);
void detach_arrived(Session &session);
// The daemon has hung up; link_lock is held. Whether the session is over (else it waits for another daemon).
[[nodiscard]] bool hung_up(Session &session);

// How long to wait for a device proxy that comes back, and whether whoever started this process has said so:
// SINGULARITY_PROXY_ATTACH_TIMEOUT.
struct Patience {
    std::chrono::milliseconds span{};
    bool asked_for = false;
};
[[nodiscard]] Patience patience();

// While one lives the thread does things that must not be divided between two daemons; where a session is
// paused, making one waits. For operations that use the socket as well as the ring.
class Undivided {
  public:
    Undivided();
    ~Undivided();
    Undivided(const Undivided &) = delete;
    Undivided &operator=(const Undivided &) = delete;
    Undivided(Undivided &&) = delete;
    Undivided &operator=(Undivided &&) = delete;

  private:
    std::optional<channel::ClientEnd::PassGate> pass_; // the thread's outermost one has it
};

// Launches of graphs whose host nodes may copy from or to other devices: no session is paused as long as one
// is under way, since its device would wait for the other one, which has stopped. Where a session is paused,
// beginning one waits.
void expect_launches_apart(); // there is such a graph
[[nodiscard]] bool any_launch_apart();
void begin_launch_apart(Context &context);
void end_launch_apart(Context &context);
void forget_launches_apart(Context &context); // which has ended

// host_memory.cpp: the memory that a daemon had, for the one that follows it.
[[nodiscard]] CUresult share_host_memory_again(Session &session);

} // namespace singularity::client
