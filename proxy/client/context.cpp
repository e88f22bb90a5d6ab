// SPDX-License-Identifier: GPL-2.0-or-later
#include "context.hpp"

#include "attachment.hpp"
#include "common/thread_owned.hpp"
#include "graph_memory.hpp"
#include "memory.hpp"
#include "opened_memory.hpp"
#include "proxy/client/forward.hpp"
#include "proxy/protocol/memory.hpp"
#include "stream_memory.hpp"

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

template <class Message>
std::expected<std::uint64_t, int> ContextSlabs::map_by(Message message, std::uint64_t alignment) {
    auto &session = *context_->session;
    const auto size = message.size;
    std::optional<std::uint64_t> address;
    {
        const std::scoped_lock lock(session.addresses_lock);
        address = session.addresses.allocate(size, alignment);
    }
    if (!address)
        return std::unexpected(static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY));
    message.address = *address;
    const auto result =
        ask(Route{.session = &session, .context = context_}, protocol::Message<Message>{.fixed = message});
    if (result != CUDA_SUCCESS) {
        const std::scoped_lock lock(session.addresses_lock);
        session.addresses.release({.address = *address, .size = size});
        return std::unexpected(static_cast<int>(result));
    }
    const std::scoped_lock lock(lock_);
    mapped_.push_back({.address = *address, .size = size});
    return *address;
}

std::expected<std::uint64_t, int> ContextSlabs::map(std::uint64_t size, std::uint64_t alignment) {
    return map_by(protocol::MapSlab{.size = size}, alignment);
}

std::expected<std::uint64_t, int> ContextSlabs::open(const protocol::OpenSlab &message) {
    return map_by(message, SlabAllocator::kUnit);
}

std::optional<Range> ContextSlabs::around(std::uint64_t address) {
    const std::scoped_lock lock(lock_);
    const auto found = std::ranges::find_if(
        mapped_, [&](const Range &range) { return address - range.address < range.size; });
    return found == mapped_.end() ? std::nullopt : std::optional(*found);
}

void ContextSlabs::unmap(Range slab) {
    auto &session = *context_->session;
    const auto result =
        ask(Route{.session = &session, .context = context_},
            protocol::Message<protocol::UnmapSlab>{.fixed = {.address = slab.address, .size = slab.size}});
    {
        const std::scoped_lock lock(lock_);
        std::erase_if(mapped_, [&](const Range &range) { return range.address == slab.address; });
    }
    // Where it could not be unmapped its addresses must not be used again.
    if (result != CUDA_SUCCESS)
        return;
    const std::scoped_lock lock(session.addresses_lock);
    session.addresses.release(slab);
}

void ContextSlabs::forget() {
    std::vector<Range> mapped;
    {
        const std::scoped_lock lock(lock_);
        mapped = std::exchange(mapped_, {});
    }
    const std::scoped_lock lock(context_->session->addresses_lock);
    for (const auto &range : mapped)
        context_->session->addresses.release(range);
}

void Context::ended() {
    alive = false;
    unshare_host_memory(*this);
    forget_freed(*this);
    forget_graph_memory(*this);
    forget_opened(*this);
    forget_device_memory(*this);
    memory.forget();
    slabs.forget();
    {
        const std::scoped_lock lock(streams_lock);
        idle_streams.clear();
    }
    {
        const std::scoped_lock lock(copy_stream_lock);
        copy_stream = 0;
    }
    forget_launches_apart(*this);
    auto &mine = process();
    for (unsigned kind = 1; kind <= driver_api::kHandleKinds; ++kind)
        if (kind != driver_api::kHandleContext)
            static_cast<void>(
                mine.table(kind).remove_if([this](const Object &object) { return object.context == this; }));
}

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

void note_result(Context *context, CUresult result) {
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        break;
    default:
        return;
    }
    if (context == nullptr)
        return;
    CUresult none = CUDA_SUCCESS;
    context->sticky.compare_exchange_strong(none, result);
}

CUresult noted(Context *context, CUresult result) {
    note_result(context, result);
    return result != CUDA_SUCCESS || context == nullptr ? result : context->sticky.load();
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
