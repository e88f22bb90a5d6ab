// SPDX-License-Identifier: GPL-2.0-or-later
// How a client is asked to stop, and what it says: the daemon's main thread receives it, the thread that
// saves an image waits for it.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proxy/channel/link.hpp"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace singularity::proxyd {

struct PausedClient {
    channel::Paused said;
    std::vector<channel::AddressRange> ranges; // checked: in order, apart, none empty
};

class Pause {
  public:
    // A number for the question; from here on its answer is waited for.
    [[nodiscard]] std::uint64_t ask();
    [[nodiscard]] Expected<PausedClient> wait(const Deadline &deadline);
    // From the main thread. An error is a broken rule.
    [[nodiscard]] Expected<void> answered(const channel::Packet &packet);
    // The session ends: nobody answers any more.
    void close();

  private:
    std::mutex lock_;
    std::condition_variable changed_;
    std::uint64_t asked_ = 0;
    bool waiting_ = false;
    bool closed_ = false;
    std::optional<PausedClient> answer_;
};

} // namespace singularity::proxyd
