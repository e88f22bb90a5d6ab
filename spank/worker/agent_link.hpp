// SPDX-License-Identifier: GPL-2.0-or-later
// The worker's side of its socket to the agent. Safe to use from several threads.
#pragma once

#include "agent/worker/worker_messages.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "node/seqpacket.hpp"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace singularity::worker {

class AgentLink {
  public:
    explicit AgentLink(int socket) : socket_(socket) {}

    template <class Body>
    [[nodiscard]] Expected<void> tell(const Body &body, std::span<const int> descriptors = {}) {
        return send(node::encode(body), descriptors);
    }
    [[nodiscard]] Expected<node::Packet> receive(const Deadline &deadline);

    // An error once the agent has hung up: what is under way is to be undone.
    [[nodiscard]] Expected<void> still_wanted() const;
    // News, a few times a second; where the agent is gone, still_wanted() says so.
    void progress(const std::string &phase, std::uint64_t bytes = 0, std::uint64_t total = 0);

  private:
    [[nodiscard]] Expected<void> send(const std::string &bytes, std::span<const int> descriptors) const;

    int socket_;
    std::mutex lock_;
    std::string phase_;
    Deadline::Clock::time_point told_;
};

} // namespace singularity::worker
