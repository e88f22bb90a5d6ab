// SPDX-License-Identifier: GPL-2.0-or-later
#include "pool.hpp"

#include "criu-hooks/store/manifest.hpp"

#include <utility>

namespace singularity::store {

Pool::Pool(unsigned threads) : threads_(threads) {}

Pool::~Pool() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    more_.notify_all();
    for (std::thread &thread : running_)
        thread.join();
}

void Pool::submit(Task task) {
    std::unique_lock lock(mutex_);
    while (running_.size() < threads_)
        running_.emplace_back([this] { work(); });
    less_.wait(lock, [this] { return unfinished_ < std::size_t{2} * threads_; });
    ++unfinished_;
    tasks_.push_back(std::move(task));
    lock.unlock();
    more_.notify_one();
}

void Pool::work() {
    Scratch scratch;
    std::unique_lock lock(mutex_);
    for (;;) {
        more_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
        if (tasks_.empty())
            return;
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task(scratch);
        task = nullptr; // what it holds ends without the lock
        lock.lock();
        --unfinished_;
        less_.notify_one();
    }
}

std::vector<std::byte> Pool::take_buffer(std::size_t size) {
    std::vector<std::byte> buffer;
    {
        const std::lock_guard lock(mutex_);
        if (!buffers_.empty()) {
            buffer = std::move(buffers_.back());
            buffers_.pop_back();
        }
    }
    buffer.reserve(kChunkSize);
    buffer.resize(size);
    return buffer;
}

void Pool::give_buffer(std::vector<std::byte> buffer) {
    const std::lock_guard lock(mutex_);
    if (buffers_.size() < std::size_t{2} * threads_)
        buffers_.push_back(std::move(buffer));
}

} // namespace singularity::store
