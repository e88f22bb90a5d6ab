// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/context.hpp"

#include "common/thread_owned.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

std::uint64_t thread_number() {
    static constinit std::atomic<std::uint64_t> next{1};
    thread_local const std::uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
    return number;
}

// A thread's default streams end with it, once their work is done.
struct ThreadStreams {
    std::vector<std::weak_ptr<Stream>> streams;
    ThreadStreams() = default;
    ~ThreadStreams() {
        for (const auto &weak : streams)
            if (const auto stream = weak.lock()) {
                const std::scoped_lock lock(stream->context().submission_mutex());
                stream->ended = true;
            }
    }
    ThreadStreams(const ThreadStreams &) = delete;
    ThreadStreams &operator=(const ThreadStreams &) = delete;
    ThreadStreams(ThreadStreams &&) = delete;
    ThreadStreams &operator=(ThreadStreams &&) = delete;
};

} // namespace

Handles<Context, CUcontext, HandleKind::context> &contexts() {
    static auto &table = *new Handles<Context, CUcontext, HandleKind::context>; // outlives every thread
    return table;
}

Handles<Stream, CUstream, HandleKind::stream> &streams() {
    static auto &table = *new Handles<Stream, CUstream, HandleKind::stream>; // outlives every thread
    return table;
}

Context::Context(Device &device, CUcontext handle, bool primary, unsigned context_flags)
    : active(!primary), flags(context_flags), device_(device), handle_(handle), primary_(primary),
      id_(next_id()),
      device_heap_([&device](std::uint64_t size) { return map_device(size, &device.memory()); }),
      host_heap_(map_host), managed_heap_([](std::uint64_t size) { return map_device(size, nullptr); }),
      kernel_heap_(
          [this](std::uint64_t size) -> Result<std::shared_ptr<Mapping>> {
              // As large as the limit says: what a launch may touch is fixed when it begins.
              const std::uint64_t limit =
                  round_up(std::max<std::uint64_t>(limits[CU_LIMIT_MALLOC_HEAP_SIZE], size), kGranularity);
              auto mapping = map_device(limit, &device_.memory());
              if (mapping) {
                  Allocation allocation{};
                  allocation.address = (*mapping)->address();
                  allocation.size = (*mapping)->size();
                  allocation.owner = id_;
                  allocation.context = handle_;
                  allocation.device = device_.ordinal();
                  allocation.mapping = *mapping;
                  allocation.internal = true;
                  memory_map().add(std::move(allocation));
              }
              return mapping;
          },
          true) {
    constexpr std::size_t kMebi = std::size_t{1} << 20U;
    limits[CU_LIMIT_STACK_SIZE] = 1024;
    limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 * kMebi;
    limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 * kMebi;
    limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

std::shared_ptr<Stream> Context::legacy_stream() {
    const std::scoped_lock lock(submission_mutex_);
    if (legacy_ == nullptr && active) {
        legacy_ = make_stream(Stream::Role::legacy, CU_STREAM_DEFAULT, 0);
        legacy_->handle = CU_STREAM_LEGACY;
        streams_.push_back(legacy_);
    }
    return legacy_;
}

std::shared_ptr<Stream> Context::per_thread_stream() {
    auto &mine = ThreadOwned<ThreadStreams>::mine();
    const std::scoped_lock lock(submission_mutex_);
    auto &slot = per_thread_[thread_number()];
    if (auto stream = slot.lock())
        return stream;
    auto stream = make_stream(Stream::Role::per_thread, CU_STREAM_DEFAULT, 0);
    stream->handle = CU_STREAM_PER_THREAD;
    slot = stream;
    std::erase_if(mine.streams, [](const auto &weak) { return weak.expired(); });
    mine.streams.push_back(stream);
    streams_.push_back(stream);
    return stream;
}

std::shared_ptr<Stream> Context::make_stream(Stream::Role role, unsigned stream_flags, int priority) {
    return std::make_shared<Stream>(shared_from_this(), *this, role, stream_flags, priority);
}

void Context::add_stream(std::shared_ptr<Stream> stream) {
    const std::scoped_lock lock(submission_mutex_);
    std::erase_if(streams_, [](const auto &other) {
        return other->ended && (other->last_work == nullptr || other->last_work->done());
    });
    streams_.push_back(std::move(stream));
}

std::vector<std::shared_ptr<Stream>> Context::streams() {
    const std::scoped_lock lock(submission_mutex_);
    return streams_;
}

void Context::implicit_dependencies(Stream &stream, std::vector<CompletionPtr> &out) {
    if (stream.non_blocking())
        return;
    const auto add = [&](Stream &other) {
        if (&other != &stream && !other.non_blocking() && other.last_work != nullptr &&
            !other.last_work->done())
            out.push_back(other.last_work);
    };
    if (stream.role() == Stream::Role::legacy) {
        for (const auto &other : streams_)
            add(*other);
    } else if (legacy_ != nullptr) {
        add(*legacy_);
    }
}

std::vector<CompletionPtr> Context::outstanding() {
    std::vector<CompletionPtr> out;
    const std::scoped_lock lock(submission_mutex_);
    for (const auto &stream : streams_)
        if (stream->last_work != nullptr && !stream->last_work->done())
            out.push_back(stream->last_work);
    return out;
}

std::vector<CompletionPtr> Context::outstanding(Stream &stream) {
    std::vector<CompletionPtr> out;
    const std::scoped_lock lock(submission_mutex_);
    if (stream.last_work != nullptr && !stream.last_work->done())
        out.push_back(stream.last_work);
    if (stream.role() == Stream::Role::legacy)
        implicit_dependencies(stream, out);
    return out;
}

std::shared_ptr<const Ranges> Context::ranges() {
    const std::scoped_lock lock(ranges_mutex_);
    if (const std::uint64_t generation = memory_map().generation();
        ranges_ == nullptr || generation != ranges_generation_) {
        ranges_ = memory_map().visible_to(viewer());
        ranges_generation_ = generation;
    }
    return ranges_;
}

void Context::drop_ranges() {
    std::shared_ptr<const Ranges> dropped; // ends without the lock
    const std::scoped_lock lock(ranges_mutex_);
    if (ranges_generation_ != memory_map().generation())
        dropped = std::move(ranges_);
}

Viewer Context::viewer() const {
    const std::shared_lock lock(peers_mutex_);
    return {.context = id_, .device = device_.ordinal(), .peers = peers_};
}

bool Context::add_peer(std::uint64_t context) {
    const std::unique_lock lock(peers_mutex_);
    return peers_.insert(context).second;
}

bool Context::remove_peer(std::uint64_t context) {
    const std::unique_lock lock(peers_mutex_);
    return peers_.erase(context) != 0;
}

std::uint64_t Context::kernel_malloc(std::uint64_t size) {
    const auto block = kernel_heap_.allocate(std::max<std::uint64_t>(size, 1));
    return block ? block->address : 0;
}

void Context::kernel_free(std::uint64_t address) { kernel_heap_.free(address); }

void Context::print(std::string_view text) {
    const std::scoped_lock lock(print_mutex_);
    printed_ += text;
}

void Context::flush_print() {
    std::string text;
    {
        const std::scoped_lock lock(print_mutex_);
        text.swap(printed_);
    }
    if (!text.empty()) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        // The order with what the program itself writes to the descriptor.
        std::fflush(stdout);
    }
}

CUresult Context::synchronize() { return wait_for(*this, outstanding()); }

void drop_everywhere() {
    for (const auto &context : contexts().all([](const Context &one) { return one.active.load(); }))
        context->drop_ranges();
}

} // namespace singularity::softgpu::driver
