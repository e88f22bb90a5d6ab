// SPDX-License-Identifier: GPL-2.0-or-later
// Streams of a session that takes turns, and the collectives that they wait for. Nothing that touches the
// session's memory is in such a stream behind the collective, so the memory may leave meanwhile. Any thread.
#pragma once

#include "backlog.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace singularity::proxyd {

class ParkedStreams {
  public:
    struct One {
        std::uint64_t stream = 0; // the client's handle
        std::uint64_t communicator = 0;
        std::uint64_t member = 0; // the backlog's name of the communicator
        std::uint64_t group = 0;
        bool alone = false; // it waits on the device, and no other stream waits for it by itself
    };
    void add(const One &one);
    // Forgets those whose collectives are complete. How many groups are left.
    [[nodiscard]] std::size_t count(const Backlog &backlog) {
        return some_.load(std::memory_order_relaxed) ? count_again(backlog) : 0;
    }
    [[nodiscard]] bool has(std::uint64_t stream) const;
    [[nodiscard]] bool all_alone() const;
    // An event was recorded in a stream: it comes after what the stream waits for, or after nothing of that.
    void record(std::uint64_t event, std::uint64_t stream);
    // Whether it comes after what another stream than this one waits for.
    [[nodiscard]] bool comes_after(std::uint64_t event, std::uint64_t but) const;
    // Those that wait on the device are left to it: they hold the session's work up themselves.
    void forget_alone();
    // Whether all that the stream waits for is of this communicator, or nothing.
    [[nodiscard]] bool waits_only_for(std::uint64_t stream, std::uint64_t communicator) const;

  private:
    [[nodiscard]] std::size_t count_again(const Backlog &backlog);
    [[nodiscard]] bool is_parked(std::uint64_t stream) const; // with the lock held

    std::atomic<bool> some_ = false; // there may be
    mutable std::mutex lock_;
    std::vector<One> all_;
    std::map<std::uint64_t, std::uint64_t> events_; // recorded in a parked stream, and which
};

} // namespace singularity::proxyd
