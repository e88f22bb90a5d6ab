// SPDX-License-Identifier: GPL-2.0-or-later
#include "workers.hpp"

#include <thread>
#include <utility>

namespace singularity::proxyd {

void Workers::run(std::shared_ptr<void> keep, std::function<void()> begin, std::function<void()> job) {
    if (keep == nullptr)
        return job();
    {
        const std::scoped_lock lock(lock_);
        if (stopping_)
            return;
        jobs_.push_back(std::move(job));
        if (idle_ >= jobs_.size()) {
            changed_.notify_one();
            return;
        }
    }
    start(std::move(keep), [this, begin = std::move(begin)] {
        begin();
        work();
    });
}

void Workers::start(std::shared_ptr<void> keep, std::function<void()> whole) {
    {
        const std::scoped_lock lock(lock_);
        ++threads_;
    }
    // Detached: it may be in a driver call that never returns. It counts itself, and keeps what it uses.
    std::thread([this, keep = std::move(keep), whole = std::move(whole)] {
        whole();
        const std::scoped_lock lock(lock_);
        --threads_;
        changed_.notify_all();
    }).detach();
}

void Workers::work() {
    std::unique_lock lock(lock_);
    for (;;) {
        ++idle_;
        changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
        --idle_;
        if (jobs_.empty())
            return;
        auto job = std::move(jobs_.front());
        jobs_.pop_front();
        ++busy_;
        lock.unlock();
        job();
        lock.lock();
        --busy_;
    }
}

void Workers::stop() {
    const std::scoped_lock lock(lock_);
    stopping_ = true;
    changed_.notify_all();
}

void Workers::restart() {
    const std::scoped_lock lock(lock_);
    stopping_ = false;
}

bool Workers::idle() {
    const std::scoped_lock lock(lock_);
    return jobs_.empty() && busy_ == 0;
}

bool Workers::gone(const Deadline &deadline) {
    std::unique_lock lock(lock_);
    return changed_.wait_until(lock, deadline.when(), [this] { return threads_ == 0; });
}

} // namespace singularity::proxyd
