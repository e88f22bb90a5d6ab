// SPDX-License-Identifier: GPL-2.0-or-later
// How long something may still take, on the clock that does not jump.
#pragma once

#include "common/error.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>

namespace singularity {

class Deadline {
  public:
    using Clock = std::chrono::steady_clock;

    // A negative span has expired already; one too long for the clock never expires.
    [[nodiscard]] static Deadline after(std::chrono::milliseconds span);

    [[nodiscard]] bool expired() const { return Clock::now() >= when_; }

    // Never negative.
    [[nodiscard]] Clock::duration remaining() const {
        return std::max(Clock::duration::zero(), when_ - Clock::now());
    }

    // For poll(2), epoll_wait(2): milliseconds rounded up, so that waiting so long ends behind the deadline
    // and a loop around poll does not spin through the last millisecond.
    [[nodiscard]] int poll_timeout() const;

    // For std::condition_variable::wait_until and the like.
    [[nodiscard]] Clock::time_point when() const { return when_; }

    // The span that was given, for messages.
    [[nodiscard]] std::chrono::milliseconds span() const { return span_; }

  private:
    Deadline(Clock::time_point when, std::chrono::milliseconds span) : when_(when), span_(span) {}

    Clock::time_point when_;
    std::chrono::milliseconds span_;
};

// "cannot wait any longer for <what>: 2s have passed", code ETIMEDOUT.
[[nodiscard]] Error timeout_error(const Deadline &deadline, std::string_view what);

// Waits until another thread has made the condition true and notified. The condition is tested with the lock
// held, and once more when the deadline has passed: a condition that holds is never reported as a timeout.
template <class Condition>
[[nodiscard]] Expected<void> wait_until(std::unique_lock<std::mutex> &lock, std::condition_variable &changed,
                                        Condition condition, const Deadline &deadline,
                                        std::string_view what) {
    if (changed.wait_until(lock, deadline.when(), condition))
        return {};
    return std::unexpected(timeout_error(deadline, what));
}

// Waits for a condition that nobody notifies, such as a file of /proc: tests it again and again, at first
// often, later every `pause_at_most`, and once more when the deadline has passed.
template <class Condition>
[[nodiscard]] Expected<void>
wait_until(Condition condition, const Deadline &deadline, std::string_view what,
           std::chrono::milliseconds pause_at_most = std::chrono::milliseconds(50)) {
    Deadline::Clock::duration pause = std::chrono::milliseconds(1);
    for (;;) {
        const bool last = deadline.expired();
        if (condition())
            return {};
        if (last)
            return std::unexpected(timeout_error(deadline, what));
        std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
        pause = std::min<Deadline::Clock::duration>(pause * 2, pause_at_most);
    }
}

} // namespace singularity
