// SPDX-License-Identifier: GPL-2.0-or-later
// The end of one piece of work, and waiting for it.
#pragma once

#include "proxy/libcuda/cuda.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace singularity::softgpu::driver {

using Clock = std::chrono::steady_clock;

// A thread that waits for any of several things. Each of them signals; the thread looks what it was.
class Waiter {
  public:
    void signal() {
        {
            const std::scoped_lock lock(mutex_);
            ++signals_;
        }
        changed_.notify_all();
    }
    // Until a signal that came after `seen`, or the time: the number of signals so far.
    std::uint64_t wait(std::uint64_t seen, Clock::time_point until = Clock::time_point::max()) {
        std::unique_lock lock(mutex_);
        const auto changed = [&] { return signals_ != seen; };
        if (until == Clock::time_point::max())
            changed_.wait(lock, changed);
        else
            changed_.wait_until(lock, until, changed);
        return signals_;
    }
    [[nodiscard]] std::uint64_t signals() {
        const std::scoped_lock lock(mutex_);
        return signals_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t signals_ = 0;
};

class Completion {
  public:
    [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
    // Valid once done.
    [[nodiscard]] CUresult result() const { return result_; }
    [[nodiscard]] Clock::time_point finished() const { return finished_; }

    void complete(CUresult result) {
        const std::scoped_lock lock(mutex_);
        result_ = result;
        finished_ = Clock::now();
        done_.store(true, std::memory_order_release);
        for (Waiter *waiter : waiters_)
            waiter
                ->signal(); // under the lock: remove() then returns only when nobody uses the waiter any more
        waiters_.clear();
    }
    // Until done; false: the time came first.
    bool wait(Clock::time_point until = Clock::time_point::max()) {
        Waiter waiter;
        return wait(waiter, until, [] { return false; });
    }
    // The same, given up as soon as stop() says so after a signal to the waiter.
    template <class Stop>
    bool wait(Waiter &waiter, Clock::time_point until, Stop &&stop) {
        if (done())
            return true;
        std::uint64_t seen = waiter.signals();
        if (!add(waiter))
            return true;
        while (!done() && !stop() && Clock::now() < until)
            seen = waiter.wait(seen, until);
        remove(waiter);
        return done();
    }

  private:
    bool add(Waiter &waiter) {
        const std::scoped_lock lock(mutex_);
        if (done())
            return false;
        waiters_.push_back(&waiter);
        return true;
    }
    void remove(Waiter &waiter) {
        const std::scoped_lock lock(mutex_);
        std::erase(waiters_, &waiter);
    }

    std::atomic<bool> done_{false};
    CUresult result_ = CUDA_SUCCESS;
    Clock::time_point finished_;
    std::mutex mutex_;
    std::vector<Waiter *> waiters_;
};

using CompletionPtr = std::shared_ptr<Completion>;

} // namespace singularity::softgpu::driver
