// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes from one descriptor to another within a program's poll loop. The descriptors' flags are left alone:
// they are shared with other programs.
#pragma once

#include "common/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
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
    // Of what there is by now all that can be passed on without waiting; into a regular file, all of it.
    void pass_on_what_there_is();
    // From now on nothing is read but what is there by now, however much still comes.
    void read_no_more_than_there_is();
    // Gives up, with what has not been written.
    void close();

    // Into a pipe: from now on it is known what has been read at its other end. had: so many of the bytes
    // that come have been before, and are not written.
    void count(std::uint64_t had);
    // What had been read there, `had` included, when the last one who could do so closed it; or until now.
    // Nothing: that cannot be known.
    [[nodiscard]] std::optional<std::uint64_t> taken() const;

  private:
    void skip();
    [[nodiscard]] bool may_read() const { return held_.empty() && left_to_read_ != 0; }

    UniqueFd from_;
    UniqueFd to_;
    std::string held_;                        // read, not written
    std::optional<std::size_t> left_to_read_; // bytes; nothing: all that comes
    bool counts_ = false;
    std::uint64_t skipping_ = 0; // of what comes
    std::uint64_t written_ = 0;  // and skipped, or to be skipped
    UniqueFd left_;              // the pipe, when `to_` is closed
};

// Until signal or packet: polls `others` (revents are set) and lets the pumps work. False: poll(2) failed,
// see errno.
[[nodiscard]] bool pump_and_poll(std::vector<Pump> &pumps, std::vector<pollfd> &others, int timeout_ms);

} // namespace singularity::spank
