// SPDX-License-Identifier: GPL-2.0-or-later
// Contexts, and which of them is current in a thread.
#pragma once

#include "process.hpp"
#include "proxy/protocol/memory.hpp"
#include "slab_allocator.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace singularity::client {

// Slabs of one context: addresses from its session's slice, memory from its daemon.
class ContextSlabs : public SlabSource {
  public:
    explicit ContextSlabs(Context &context) : context_(&context) {}
    [[nodiscard]] std::expected<std::uint64_t, int> map(std::uint64_t size, std::uint64_t alignment) override;
    void unmap(Range slab) override;
    // Memory of another process's: `message` with the address that is chosen.
    [[nodiscard]] std::expected<std::uint64_t, int> open(const protocol::OpenSlab &message);
    // An allocation that other processes may have opened is about to be freed.
    void end_export(std::uint64_t address);
    // The slab that holds the address.
    [[nodiscard]] std::optional<Range> around(std::uint64_t address);

  private:
    template <class Message>
    [[nodiscard]] std::expected<std::uint64_t, int> map_by(Message message, std::uint64_t alignment);

    Context *context_;
    std::mutex lock_;
    std::vector<Range> mapped_; // their addresses go back to the session when the context ends
    friend struct Context;
    void forget();
};

// Never destroyed: stacks of other threads may name it.
struct Context {
    Context(Session &its_session, std::uint64_t its_handle, bool is_primary)
        : session(&its_session), handle(its_handle), primary(is_primary), slabs(*this), memory(slabs) {}

    Session *session;
    std::uint64_t handle; // of kind "context"; what CUcontext is
    bool primary;
    std::atomic<bool> alive = false;
    std::atomic<std::uint64_t> id = 0; // cuCtxGetId; a primary context gets a new one when it is made anew
    std::atomic<unsigned> flags = 0;
    // An error that the context does not get over (cuda.h: "the process must be terminated", "leaves the
    // process in an inconsistent state"): the answer of every call from then on, asynchronous ones included.
    std::atomic<CUresult> sticky = CUDA_SUCCESS;
    unsigned retained = 0; // a primary's count, under session->primary_lock

    ContextSlabs slabs;
    SlabAllocator memory;

    // Per-thread default streams whose threads have ended.
    std::mutex streams_lock;
    std::vector<std::uint64_t> idle_streams;

    // For copies that host nodes of graphs make; 0: not made yet.
    std::mutex copy_stream_lock;
    std::uint64_t copy_stream = 0;

    [[nodiscard]] CUcontext value() const { return std::bit_cast<CUcontext>(handle); }
    // With the daemon's context gone.
    void ended(); // in context_end.cpp
};

struct ContextObject : Object {};

// The calling thread's current context; nullptr: none. It may have been destroyed: see usable().
extern thread_local Context *current_context __attribute__((tls_model("initial-exec")));

// While it lives, a context is this thread's current one, without being on its stack.
class OnContext {
  public:
    explicit OnContext(Context &context) : before_(std::exchange(current_context, &context)) {}
    ~OnContext() { current_context = before_; }
    OnContext(const OnContext &) = delete;
    OnContext &operator=(const OnContext &) = delete;
    OnContext(OnContext &&) = delete;
    OnContext &operator=(OnContext &&) = delete;

  private:
    Context *before_;
};

// The stack of the calling thread; top = current.
void push_context(Context *context);
[[nodiscard]] Context *pop_context();
void set_top_context(Context *context); // nullptr pops

// INVALID_CONTEXT or CONTEXT_IS_DESTROYED where there is none that can be used.
[[nodiscard]] CUresult usable(const Context *context);
// Its sticky error, too.
[[nodiscard]] CUresult healthy(const Context *context);
// The current one, healthy.
[[nodiscard]] CUresult need_context(Context *&context);
// From a CUcontext. nullptr if there is none.
[[nodiscard]] Context *context_of(CUcontext value);

// The primary context of a device, whether or not it is active.
[[nodiscard]] Context &primary_context(Session &session);

// The calling thread's own default stream in this context, made on first use.
[[nodiscard]] CUresult per_thread_stream(Context &context, std::uint64_t &stream);

} // namespace singularity::client
