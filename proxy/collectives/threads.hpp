// SPDX-License-Identifier: GPL-2.0-or-later
// Threads that end by themselves when what they wait for is closed; who has started them waits for that.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
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
        const std::scoped_lock lock(lock_);
        join_ended();
        const auto own = running_.emplace(running_.end());
        *own = std::thread([this, own, run = std::move(whole)]() mutable {
            run();
            run = nullptr; // what it keeps goes before it is said to have ended
            const std::scoped_lock ends(lock_);
            ended_.splice(ended_.end(), running_, own);
            changed_.notify_all();
        });
    }
    void wait() {
        std::unique_lock lock(lock_);
        changed_.wait(lock, [this] { return running_.empty(); });
        join_ended();
    }

  private:
    // With the lock held, which none of them wants any more. Libraries have something to do when a thread
    // ends, and are not to do that beside the end of the process.
    void join_ended() {
        for (auto &thread : ended_)
            thread.join();
        ended_.clear();
    }

    std::mutex lock_;
    std::condition_variable changed_;
    std::list<std::thread> running_;
    std::list<std::thread> ended_;
};

} // namespace singularity::collectives
