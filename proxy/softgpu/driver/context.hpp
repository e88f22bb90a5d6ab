// SPDX-License-Identifier: GPL-2.0-or-later
// A context: streams, memory, errors of one user of one device. Invariants:
//   - an error of work is kept and every later call in the context returns it; other contexts go on;
//   - once `cancelled` is set no work begins, and what runs ends as soon as it looks;
//   - the order of submission is the order under submission_mutex(), held only while work is put in queues.
#pragma once

#include "driver/context_state.hpp"
#include "driver/device.hpp"
#include "driver/handles.hpp"
#include "driver/heap.hpp"
#include "driver/memory_map.hpp"
#include "driver/operation.hpp"
#include "driver/stream.hpp"
#include "driver/texture_table.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace singularity::softgpu::driver {

class Context : public ContextState, public std::enable_shared_from_this<Context> {
  public:
    Context(Device &device, CUcontext handle, bool primary, unsigned flags);

    [[nodiscard]] Device &device() const { return device_; }
    [[nodiscard]] CUcontext handle() const { return handle_; }
    [[nodiscard]] bool primary() const { return primary_; }
    [[nodiscard]] std::uint64_t id() const { return id_; }

    // Primary contexts exist, by their handle, before they are used.
    std::atomic<bool> active;
    std::atomic<unsigned> flags;
    std::atomic<CUfunc_cache> cache_config{CU_FUNC_CACHE_PREFER_NONE};
    std::atomic<CUsharedconfig> shared_config{CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE};
    std::array<std::atomic<std::size_t>, CU_LIMIT_MAX> limits{};

    // --- Streams
    [[nodiscard]] std::mutex &submission_mutex() { return submission_mutex_; }
    [[nodiscard]] std::shared_ptr<Stream> legacy_stream(); // made when first asked for; nullptr after the end
    [[nodiscard]] std::shared_ptr<Stream> per_thread_stream(); // of the calling thread
    // Not one of streams() before add_stream().
    [[nodiscard]] std::shared_ptr<Stream> make_stream(Stream::Role role, unsigned stream_flags, int priority);
    void add_stream(std::shared_ptr<Stream> stream);
    [[nodiscard]] std::vector<std::shared_ptr<Stream>> streams();
    // The ends of all work that the stream, if it were used now, would come after by the rules of default
    // streams.
    void implicit_dependencies(Stream &stream, std::vector<CompletionPtr> &out); // under submission_mutex
    // Ends of all work so far.
    [[nodiscard]] std::vector<CompletionPtr> outstanding();
    // The same of what a call that synchronises with this stream waits for.
    [[nodiscard]] std::vector<CompletionPtr> outstanding(Stream &stream);

    // --- Memory
    [[nodiscard]] Heap &device_heap() { return device_heap_; }
    [[nodiscard]] Heap &host_heap() { return host_heap_; }
    [[nodiscard]] Heap &managed_heap() { return managed_heap_; }
    [[nodiscard]] std::shared_ptr<const Ranges> ranges();
    // Lets go of memory that is gone from the map.
    void drop_ranges();
    [[nodiscard]] Viewer viewer() const; // its kernels
    // False: it was (was not) so already.
    bool add_peer(std::uint64_t context);
    bool remove_peer(std::uint64_t context);
    [[nodiscard]] TextureTable &textures() { return textures_; }
    // malloc() of kernels.
    [[nodiscard]] std::uint64_t kernel_malloc(std::uint64_t size);
    void kernel_free(std::uint64_t address);

    // --- printf of kernels
    void print(std::string_view text);
    void flush_print();

    // Waits for all work, and prints. The context's error.
    CUresult synchronize();
    // Cancels all work, waits a little for what runs, and frees everything. Its handles are gone after it.
    void end(); // in context_end.cpp

  private:
    Device &device_;
    CUcontext handle_;
    bool primary_;
    std::uint64_t id_;

    std::mutex submission_mutex_;
    std::vector<std::shared_ptr<Stream>> streams_; // guarded by submission_mutex_, as are the next two
    std::shared_ptr<Stream> legacy_;
    std::map<std::uint64_t, std::weak_ptr<Stream>> per_thread_; // by thread

    Heap device_heap_;
    Heap host_heap_;
    Heap managed_heap_;
    Heap kernel_heap_;
    std::mutex ranges_mutex_;
    std::shared_ptr<const Ranges> ranges_;
    std::uint64_t ranges_generation_ = 0;
    mutable std::shared_mutex peers_mutex_;
    std::set<std::uint64_t> peers_;

    TextureTable textures_;

    std::mutex print_mutex_;
    std::string printed_;
};

[[nodiscard]] Handles<Context, CUcontext, HandleKind::context> &contexts();
[[nodiscard]] Handles<Stream, CUstream, HandleKind::stream> &streams();

// Contexts let go of memory that is gone from the map.
void drop_everywhere();

// --- The calling thread's stack of contexts (current_context.cpp)
[[nodiscard]] CUcontext current_handle();
void push_current(CUcontext context);
[[nodiscard]] Result<CUcontext> pop_current();
void set_current(CUcontext context); // replaces the top; nullptr takes it away
// The context that calls are for: CUDA_ERROR_INVALID_CONTEXT without one, CUDA_ERROR_CONTEXT_IS_DESTROYED
// after its end. A context with an error is given all the same.
[[nodiscard]] Result<std::shared_ptr<Context>> current_context();
[[nodiscard]] Result<std::shared_ptr<Context>> context_of(CUcontext handle); // nullptr: the current one

// --- Submission (submit.cpp)
struct Submission {
    std::vector<CompletionPtr> after;
    // Short work without anything to wait for is done by the caller itself.
    bool may_run_here = false;
    std::shared_ptr<Event> record; // its new completion is this work's
};
CompletionPtr submit(Stream &stream, Operation operation, Submission how = {});
// The stream that a handle means in the context, per-thread and legacy default streams among them.
[[nodiscard]] Result<std::shared_ptr<Stream>> stream_of(Context &context, CUstream handle);
// Waits, then prints what kernels printed. The context's error.
CUresult wait_for(Context &context, const std::vector<CompletionPtr> &completions);

} // namespace singularity::softgpu::driver
