// SPDX-License-Identifier: GPL-2.0-or-later
#include "context.hpp"

#include "common/thread_owned.hpp"

#include <algorithm>
#include <utility>

namespace singularity::client {

namespace {

struct ThreadStream {
    Context *context;
    std::uint64_t context_id; // a context made anew has none of the old one's streams
    std::uint64_t stream;
};

// What a thread has. Its end gives its streams to later threads: they are ordinary streams of the daemon, and
// an order with the work of a thread that has ended does no harm.
struct ThreadState {
    std::vector<Context *> stack;
    std::vector<ThreadStream> streams;

    ThreadState() = default;
    ThreadState(const ThreadState &) = delete;
    ThreadState &operator=(const ThreadState &) = delete;
    ThreadState(ThreadState &&) = delete;
    ThreadState &operator=(ThreadState &&) = delete;
    ~ThreadState() {
        current_context = nullptr;
        for (const auto &entry : streams) {
            const std::scoped_lock lock(entry.context->streams_lock);
            if (entry.context->alive && entry.context->id == entry.context_id)
                entry.context->idle_streams.push_back(entry.stream);
        }
    }
};

ThreadState &thread_state() { return ThreadOwned<ThreadState>::mine(); }

void take_top(const ThreadState &state) {
    current_context = state.stack.empty() ? nullptr : state.stack.back();
}

} // namespace

thread_local Context *current_context = nullptr;

void push_context(Context *context) {
    auto &state = thread_state();
    state.stack.push_back(context);
    take_top(state);
}

Context *pop_context() {
    auto &state = thread_state();
    if (state.stack.empty())
        return nullptr;
    auto *const top = state.stack.back();
    state.stack.pop_back();
    take_top(state);
    return top;
}

void set_top_context(Context *context) {
    auto &state = thread_state();
    if (!state.stack.empty())
        state.stack.pop_back();
    if (context != nullptr)
        state.stack.push_back(context);
    take_top(state);
}

CUresult usable(const Context *context) {
    if (context == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive.load(std::memory_order_acquire))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return CUDA_SUCCESS;
}

CUresult healthy(const Context *context) {
    if (const auto bad = usable(context); bad != CUDA_SUCCESS)
        return bad;
    return context->sticky.load(std::memory_order_relaxed);
}

CUresult need_context(Context *&context) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    context = current_context;
    return healthy(context);
}

Context *context_of(CUcontext value) {
    auto *const object =
        process().table(driver_api::kHandleContext).find(std::bit_cast<std::uint64_t>(value));
    return object == nullptr ? nullptr : object->context;
}

Context &primary_context(Session &session) {
    const std::scoped_lock lock(session.primary_lock);
    if (session.primary == nullptr) {
        auto &table = process().table(driver_api::kHandleContext);
        const auto handle = table.reserve();
        session.primary = std::make_unique<Context>(session, handle, true).release(); // see Context
        auto object = std::make_unique<ContextObject>();
        object->context = session.primary;
        object->session = &session;
        table.add(handle, std::move(object));
    }
    return *session.primary;
}

CUresult per_thread_stream(Context &context, std::uint64_t &stream) {
    auto &streams = thread_state().streams;
    for (auto &entry : streams)
        if (entry.context == &context && entry.context_id == context.id) {
            stream = entry.stream;
            return CUDA_SUCCESS;
        }
    std::erase_if(streams, [&](const ThreadStream &entry) { return entry.context == &context; });
    {
        const std::scoped_lock lock(context.streams_lock);
        if (!context.idle_streams.empty()) {
            stream = context.idle_streams.back();
            context.idle_streams.pop_back();
            streams.push_back({&context, context.id, stream});
            return CUDA_SUCCESS;
        }
    }
    CUstream made = nullptr;
    const OnContext scope(context);
    if (const auto result = cuStreamCreate(&made, CU_STREAM_DEFAULT); result != CUDA_SUCCESS)
        return result;
    stream = std::bit_cast<std::uint64_t>(made);
    streams.push_back({&context, context.id, stream});
    return CUDA_SUCCESS;
}

} // namespace singularity::client
