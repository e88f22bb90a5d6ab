// SPDX-License-Identifier: GPL-2.0-or-later
// A stream: a queue of work and the thread that runs it in order. The thread is made for the first work and
// ends when there has been none for a while.
#pragma once

#include "driver/completion.hpp"
#include "driver/context_state.hpp"
#include "driver/operation.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace singularity::softgpu::driver {

struct StreamCapture; // capture.hpp

struct Work {
    Operation operation;
    std::vector<CompletionPtr> after; // of other streams
    CompletionPtr completion;
};

class Stream : public std::enable_shared_from_this<Stream> {
  public:
    enum class Role : std::uint8_t { created, legacy, per_thread };

    // state: the context's. See Context::make_stream.
    Stream(std::shared_ptr<Context> context, ContextState &state, Role role, unsigned flags, int priority);

    [[nodiscard]] Context &context() const { return *context_; }
    [[nodiscard]] const std::shared_ptr<Context> &context_ptr() const { return context_; }
    [[nodiscard]] Role role() const { return role_; }
    [[nodiscard]] bool non_blocking() const { return (flags_ & CU_STREAM_NON_BLOCKING) != 0; }
    [[nodiscard]] unsigned flags() const { return flags_; }
    [[nodiscard]] int priority() const { return priority_; }
    [[nodiscard]] std::uint64_t id() const { return id_; }

    CUstream handle = nullptr; // set before anybody else knows it

    // The work submitted last. Guarded by the context's submission lock; use last() of the context.
    CompletionPtr last_work;
    bool ended = false; // destroyed by the program; same lock

    // Capture state; guarded by capture_mutex().
    std::shared_ptr<StreamCapture> capture;

    // Attributes that only travel; guarded by the context's submission lock.
    CUaccessPolicyWindow access_policy{};
    CUsynchronizationPolicy synchronization_policy = CU_SYNC_POLICY_AUTO;
    CUlaunchMemSyncDomainMap domain_map{0, 1};
    CUlaunchMemSyncDomain domain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;

    // Under the context's submission lock, so that the queue's order is the order of submission.
    void push(Work work);
    // Wakes the worker if it waits for something that has not come: the context is cancelled.
    void wake() { waiter_.signal(); }
    [[nodiscard]] Waiter &waiter() { return waiter_; }
    // Until the worker runs nothing; false: the time came first.
    [[nodiscard]] bool wait_idle(Clock::time_point until);

  private:
    static void work(const std::shared_ptr<Stream> &self);
    void run(Work &work);

    std::shared_ptr<Context> context_;
    ContextState &state_;
    Role role_;
    unsigned flags_;
    int priority_;
    std::uint64_t id_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Work> queue_;
    bool threaded_ = false;
    bool busy_ = false;
    Waiter waiter_;
};

} // namespace singularity::softgpu::driver
