// SPDX-License-Identifier: GPL-2.0-or-later
// Threads that help whoever runs a launch. The caller works too, so a launch never waits for a free thread.
#pragma once

#include "engine/engine.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace singularity::softgpu {

struct Workers::Impl {
    explicit Impl(unsigned threads);
    ~Impl();
    Impl(const Impl &) = delete;
    Impl &operator=(const Impl &) = delete;
    Impl(Impl &&) = delete;
    Impl &operator=(Impl &&) = delete;

    // `work` on up to so many threads at once, the caller's among them; it takes what is to be done from
    // where all of them take it. Returns when all have returned. `work` does not throw.
    void run(unsigned threads, const std::function<void()> &work);

    unsigned size;

  private:
    struct Job {
        const std::function<void()> &work;
        unsigned wanted;
        unsigned helpers;
        std::condition_variable idle;
    };
    void help();

    std::mutex lock;
    std::condition_variable wake;
    std::deque<Job *> jobs;
    bool ending = false;
    std::vector<std::jthread> helpers;
};

} // namespace singularity::softgpu
