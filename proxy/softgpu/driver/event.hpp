// SPDX-License-Identifier: GPL-2.0-or-later
// Events: the end of the work that was last recorded.
#pragma once

#include "driver/completion.hpp"
#include "driver/context.hpp"
#include "driver/handles.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace singularity::softgpu::driver {

struct CaptureSession;
struct GraphNode;

class Event {
  public:
    Event(std::shared_ptr<Context> context, unsigned event_flags)
        : flags(event_flags), context_(std::move(context)) {}
    [[nodiscard]] bool belongs_to(const Context &context) const { return context_.get() == &context; }
    [[nodiscard]] Context &context() const { return *context_; }

    CUevent handle = nullptr;
    const unsigned flags;

    // nullptr: never recorded.
    [[nodiscard]] CompletionPtr completion() const {
        const std::scoped_lock lock(mutex_);
        return completion_;
    }
    void record(CompletionPtr completion) {
        const std::scoped_lock lock(mutex_);
        completion_ = std::move(completion);
    }

    // Recorded in a stream that is being captured; guarded by capture_mutex().
    std::shared_ptr<CaptureSession> captured_in;
    std::vector<std::shared_ptr<GraphNode>> captured_nodes;
    std::atomic<bool> captured{false}; // whether captured_in is set, for those without the mutex

  private:
    std::shared_ptr<Context> context_;
    mutable std::mutex mutex_;
    CompletionPtr completion_;
};

[[nodiscard]] Handles<Event, CUevent, HandleKind::event> &events();

} // namespace singularity::softgpu::driver
