// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes from one descriptor to another within a program's poll loop. The descriptors' flags are left alone:
// they are shared with other programs.
#pragma once

#include "common/unique_fd.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

namespace singularity::spank {

class Pump {
  public:
    // Both become the pump's.
    Pump(UniqueFd from, UniqueFd to) : from_(std::move(from)), to_(std::move(to)) {}

    [[nodiscard]] bool done() const { return !to_; }
    // There is nothing to do now.
    [[nodiscard]] bool idle() const;
    void watch(std::vector<pollfd> &watched) const;
    // Does what can be done without waiting. At the end of input the output is closed, and the other way
    // round.
    void work();
    // Gives up, with what has not been written.
    void close();

  private:
    UniqueFd from_;
    UniqueFd to_;
    std::string held_; // read, not written
};

// Until signal or packet: polls `others` (revents are set) and lets the pumps work. False: poll(2) failed,
// see errno.
[[nodiscard]] bool pump_and_poll(std::vector<Pump> &pumps, std::vector<pollfd> &others, int timeout_ms);

} // namespace singularity::spank
