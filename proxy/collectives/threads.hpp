// SPDX-License-Identifier: GPL-2.0-or-later
// Threads that end by themselves when what they wait for is closed; who has started them waits for that.
#pragma once

#include "proof.hpp"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace singularity::collectives {

class Threads {
  public:
    Threads() = default;
    Threads(const Threads &) = delete;
    Threads &operator=(const Threads &) = delete;
    Threads(Threads &&) = delete;
    Threads &operator=(Threads &&) = delete;
    ~Threads() { wait(); }

    void start(std::function<void()> whole) {
        {
            const std::scoped_lock lock(lock_);
            ++count_;
        }
        std::thread([this, run = std::move(whole)]() mutable {
            run();
            run = nullptr; // what it keeps goes before it is said to have ended
            end_proofs_of_thread();
            const std::scoped_lock lock(lock_);
            --count_;
            ended_.notify_all();
        }).detach();
    }
    void wait() {
        std::unique_lock lock(lock_);
        ended_.wait(lock, [this] { return count_ == 0; });
    }

  private:
    std::mutex lock_;
    std::condition_variable ended_;
    unsigned count_ = 0;
};

} // namespace singularity::collectives
