// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/stream.hpp"

#include "driver/handles.hpp"

#include <chrono>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include <pthread.h>
#include <signal.h>

namespace singularity::softgpu::driver {

namespace {

using namespace std::chrono_literals;

constexpr auto kIdle = 2s;

// Signals of the program are for its own threads.
class BlockedSignals {
  public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals &) = delete;
    BlockedSignals &operator=(const BlockedSignals &) = delete;
    BlockedSignals(BlockedSignals &&) = delete;
    BlockedSignals &operator=(BlockedSignals &&) = delete;

  private:
    sigset_t before_{};
};

} // namespace

Stream::Stream(std::shared_ptr<Context> context, ContextState &state, Role role, unsigned flags, int priority)
    : context_(std::move(context)), state_(state), role_(role), flags_(flags), priority_(priority),
      id_(next_id()) {}

void Stream::push(Work work) {
    const std::scoped_lock lock(mutex_);
    if (!threaded_) {
        const BlockedSignals blocked;
        std::thread([self = shared_from_this()] {
            pthread_setname_np(pthread_self(), "softgpu-stream");
            Stream::work(self);
        }).detach();
        threaded_ = true;
    }
    queue_.push_back(std::move(work));
    changed_.notify_all();
}

void Stream::work(const std::shared_ptr<Stream> &self) {
    Stream &stream = *self;
    std::unique_lock lock(stream.mutex_);
    for (;;) {
        if (!stream.changed_.wait_for(lock, kIdle, [&] { return !stream.queue_.empty(); }))
            break;
        while (!stream.queue_.empty()) {
            Work next = std::move(stream.queue_.front());
            stream.queue_.pop_front();
            stream.busy_ = true;
            lock.unlock();
            stream.run(next);
            // What the work held ends before anybody is told that it is done.
            next.operation = EmptyOperation{};
            next.after.clear();
            next.completion.reset();
            lock.lock();
            stream.busy_ = false;
        }
        stream.changed_.notify_all();
    }
    stream.threaded_ = false;
}

void Stream::run(Work &work) {
    const auto stop = [&] { return state_.cancelled.load(std::memory_order_acquire); };
    for (const CompletionPtr &before : work.after)
        before->wait(waiter_, Clock::time_point::max(), stop);
    CUresult result = stop() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : state_.error();
    // A callback is told of the failure; nothing else runs after one.
    if (result == CUDA_SUCCESS || std::holds_alternative<CallbackOperation>(work.operation)) {
        try {
            if (const CUresult own = execute(work.operation, *context_, *this); own != CUDA_SUCCESS)
                result = own;
        } catch (const std::bad_alloc &) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } catch (const std::exception &) {
            result = CUDA_ERROR_UNKNOWN;
        }
        if (result != CUDA_SUCCESS && !stop())
            state_.fail(result);
    }
    // Holders first: memory that this was the last user of is gone when the program learns of the end.
    work.operation = EmptyOperation{};
    work.completion->complete(result);
}

bool Stream::wait_idle(Clock::time_point until) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, until, [&] { return queue_.empty() && !busy_; });
}

} // namespace singularity::softgpu::driver
