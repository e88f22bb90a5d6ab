// SPDX-License-Identifier: GPL-2.0-or-later
// The threads that hash, compress and check, with a bound on what is on its way through them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <zstd.h>

namespace singularity::store {

// What each thread has for itself.
struct Scratch {
    struct Free {
        void operator()(ZSTD_CCtx *context) const { ZSTD_freeCCtx(context); }
        void operator()(ZSTD_DCtx *context) const { ZSTD_freeDCtx(context); }
    };
    std::unique_ptr<ZSTD_CCtx, Free> compressor;
    std::unique_ptr<ZSTD_DCtx, Free> decompressor;
    std::vector<std::byte> file;   // a chunk file as it is on disk
    std::vector<std::byte> sample; // of content
};

class Pool {
  public:
    using Task = std::function<void(Scratch &)>;

    // Threads start with the first task, so that a program that only looks at manifests has none.
    explicit Pool(unsigned threads);
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;
    Pool(Pool &&) = delete;
    Pool &operator=(Pool &&) = delete;
    ~Pool(); // after the last task

    [[nodiscard]] unsigned threads() const { return threads_; }

    // Waits while twice as many tasks as threads are unfinished. Tasks must not call it.
    void submit(Task task);

    // Buffers of kChunkSize capacity and of that size, with whatever content: used again because fresh memory
    // costs page faults, and filling it with zeros a pass over memory.
    [[nodiscard]] std::vector<std::byte> take_buffer(std::size_t size = 0);
    void give_buffer(std::vector<std::byte> buffer);

  private:
    void work();

    unsigned threads_;
    std::mutex mutex_;
    std::condition_variable more_;
    std::condition_variable less_;
    std::deque<Task> tasks_;
    std::size_t unfinished_ = 0;
    bool ending_ = false;
    std::vector<std::vector<std::byte>> buffers_;
    std::vector<std::thread> running_;
};

} // namespace singularity::store
