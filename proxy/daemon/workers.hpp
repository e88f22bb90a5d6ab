// SPDX-License-Identifier: GPL-2.0-or-later
// Threads of a session that may wait for the device: made when they are needed, and used again. As many jobs
// as the channel has reply slots can be under way, so as many threads there can be.
#pragma once

#include "common/deadline.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace singularity::proxyd {

class Workers {
  public:
    // keep: what the job uses; it lives as long as the thread does. A thread whose driver call never returns
    // is left behind with it.
    void run(std::shared_ptr<void> keep, std::function<void()> begin, std::function<void()> job);
    // A thread that is counted with the workers but does one thing.
    void start(std::shared_ptr<void> keep, std::function<void()> whole);
    // No more jobs are begun; those under way end as they do.
    void stop();
    // After stop() and gone().
    void restart();
    // Whether no job waits or is under way.
    [[nodiscard]] bool idle();
    // Whether all threads have ended in time.
    [[nodiscard]] bool gone(const Deadline &deadline);

  private:
    void work();

    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> jobs_;
    unsigned idle_ = 0;
    unsigned threads_ = 0;
    unsigned busy_ = 0; // with a job
    bool stopping_ = false;
};

} // namespace singularity::proxyd
