// SPDX-License-Identifier: GPL-2.0-or-later
// How a client is asked to stop, and what it says: the daemon's main thread receives it, the thread that
// saves an image waits for it.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proxy/channel/link.hpp"
#include "question.hpp"

#include <cstdint>
#include <vector>

namespace singularity::proxyd {

struct PausedClient {
    channel::Paused said;
    std::vector<channel::AddressRange> ranges; // checked: in order, apart, none empty
};

class Pause {
  public:
    [[nodiscard]] std::uint64_t ask() { return question_.ask(); }
    [[nodiscard]] Expected<PausedClient> wait(const Deadline &deadline) {
        return question_.wait(deadline, "the client to stop in front of its next call");
    }
    // From the main thread. An error is a broken rule.
    [[nodiscard]] Expected<void> answered(const channel::Packet &packet);
    void close() { question_.close(); }

  private:
    Question<PausedClient> question_;
};

} // namespace singularity::proxyd
