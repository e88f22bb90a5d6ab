// SPDX-License-Identifier: GPL-2.0-or-later
// How much a session hands to the driver behind a collective that is not finished.
//
// A stream waits on the device for its collective, and what comes behind it fills the driver's queue. When
// that is full (some 1,000 launches) the driver lets the next call wait, with a lock of the context that the
// collective's own copies need: nothing would ever go on. So the session's calls wait here before.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace singularity::proxyd {

// Any thread.
class Backlog {
  public:
    // Calls behind the oldest unfinished group: from so many on they wait for it; for a while only, since
    // what it lacks may be one of them (ranks that are threads of one process); and then no further than
    // this.
    static constexpr std::uint64_t kMost = 256;
    static constexpr std::chrono::seconds kPatience{1};
    static constexpr std::uint64_t kLast = 900;

    // Groups of one communicator, from 1 on; communicator: any number of its own.
    void issued(std::uint64_t communicator, std::uint64_t group);
    // And those before it.
    void completed(std::uint64_t communicator, std::uint64_t group);

    // Counts a call that may put something into a stream. Waits while there are too many and not given_up(),
    // which is asked every 100 ms.
    template <class GivenUp>
    void count(GivenUp given_up) {
        if (unfinished_.load(std::memory_order_relaxed) != 0) [[unlikely]]
            count_behind(given_up);
    }

    // Groups that are not complete.
    [[nodiscard]] std::size_t unfinished() const { return unfinished_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool is_unfinished(std::uint64_t communicator, std::uint64_t group) const;
    // Until none is left, or given_up(), which is asked every 100 ms, or the time is over. Whether none is
    // left.
    bool wait_for_all(const std::function<bool()> &given_up, std::chrono::milliseconds most);

  private:
    void count_behind(const std::function<bool()> &given_up);

    struct Group {
        std::uint64_t communicator;
        std::uint64_t group;
        std::uint64_t calls; // that had been counted before it
    };
    std::atomic<std::size_t> unfinished_ = 0;
    mutable std::mutex lock_;
    std::condition_variable changed_;
    std::deque<Group> groups_; // the oldest first
    std::uint64_t calls_ = 0;
    std::uint64_t completions_ = 0;
    std::uint64_t waited_at_ = ~std::uint64_t{0}; // completions_ when patience ended
};

} // namespace singularity::proxyd
