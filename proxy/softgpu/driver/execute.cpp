// SPDX-License-Identifier: GPL-2.0-or-later
// Running operations, in the stream's thread.
#include "driver/context.hpp"
#include "driver/copy.hpp"
#include "driver/event.hpp"
#include "driver/graph.hpp"
#include "driver/log.hpp"
#include "driver/module.hpp"
#include "driver/platform.hpp"
#include "driver/pool.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <map>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

thread_local bool inside_host_function = false;

class HostFunctionScope {
  public:
    HostFunctionScope() { inside_host_function = true; }
    ~HostFunctionScope() { inside_host_function = false; }
    HostFunctionScope(const HostFunctionScope &) = delete;
    HostFunctionScope &operator=(const HostFunctionScope &) = delete;
    HostFunctionScope(HostFunctionScope &&) = delete;
    HostFunctionScope &operator=(HostFunctionScope &&) = delete;
};

struct FaultRow {
    FaultKind kind;
    CUresult result;
};
constexpr std::array<FaultRow, 13> kFaults{{
    {FaultKind::illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS},
    {FaultKind::misaligned_address, CUDA_ERROR_MISALIGNED_ADDRESS},
    {FaultKind::invalid_address_space, CUDA_ERROR_INVALID_ADDRESS_SPACE},
    {FaultKind::invalid_pc, CUDA_ERROR_INVALID_PC},
    {FaultKind::illegal_instruction, CUDA_ERROR_ILLEGAL_INSTRUCTION},
    {FaultKind::assertion, CUDA_ERROR_ASSERT},
    {FaultKind::trap, CUDA_ERROR_LAUNCH_FAILED},
    {FaultKind::stack_overflow, CUDA_ERROR_HARDWARE_STACK_ERROR},
    {FaultKind::deadlock, CUDA_ERROR_LAUNCH_FAILED},
    {FaultKind::not_supported, CUDA_ERROR_NOT_SUPPORTED},
    {FaultKind::out_of_resources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES},
    {FaultKind::invalid_launch, CUDA_ERROR_INVALID_VALUE},
    {FaultKind::cancelled, CUDA_ERROR_CONTEXT_IS_DESTROYED},
}};

CUresult result_of(FaultKind kind) {
    const auto *const row = std::ranges::find(kFaults, kind, &FaultRow::kind);
    return row == kFaults.end() ? CUDA_ERROR_UNKNOWN : row->result;
}

// Waits for what memory is going to hold, a little longer each time.
class Patience {
  public:
    // False: the context is cancelled.
    [[nodiscard]] bool wait(Context &context, Stream &stream) {
        if (context.cancelled.load(std::memory_order_acquire))
            return false;
        const std::uint64_t seen = stream.waiter().signals();
        if (context.cancelled.load(std::memory_order_acquire))
            return false;
        stream.waiter().wait(seen, Clock::now() + pause_);
        pause_ = std::min(pause_ * 2, std::chrono::microseconds(500));
        return true;
    }

  private:
    std::chrono::microseconds pause_{5};
};

template <class T>
bool holds(T found, T wanted, unsigned condition) {
    switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return static_cast<std::make_signed_t<T>>(found - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (found & wanted) != 0;
    default:
        return static_cast<T>(~(found | wanted)) != 0;
    }
}

template <class T>
CUresult wait_value(Context &context, Stream &stream, std::uint64_t address, T wanted, unsigned flags) {
    const std::atomic_ref<T> value(*std::bit_cast<T *>(address));
    Patience patience;
    while (!holds(value.load(std::memory_order_acquire), wanted, flags & 3U))
        if (!patience.wait(context, stream))
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return CUDA_SUCCESS;
}

template <class T>
void write_value(std::uint64_t address, T value) {
    std::atomic_ref<T>(*std::bit_cast<T *>(address)).store(value, std::memory_order_release);
}

// Values of conditional handles in one launch of a graph. Kernels set them from any thread, nodes read them
// behind kernels.
using ConditionalValues = std::map<std::uint64_t, std::atomic<std::uint32_t>>;

class Executor {
  public:
    Executor(Context &context, Stream &stream, ConditionalValues *values = nullptr)
        : context_(context), stream_(stream), values_(values) {}

    CUresult operator()(const EmptyOperation & /*nothing*/) const { return CUDA_SUCCESS; }

    CUresult operator()(const KernelOperation &kernel) const {
        Launch launch;
        launch.program = kernel.function->program();
        launch.function = kernel.function->index();
        launch.grid = kernel.grid;
        launch.block = kernel.block;
        launch.dynamic_shared = kernel.dynamic_shared;
        launch.parameters = kernel.parameters;
        launch.cooperative = kernel.cooperative;
        launch.warp_limit_threads = kBlockThreads;
        launch.shared_limit = kSharedOptIn;
        launch.stack_limit =
            std::max<std::uint64_t>(context_.limits[CU_LIMIT_STACK_SIZE], std::uint64_t{1} << 20U);
        launch.sm_count = kMultiprocessors;
        launch.device = context_.device().ordinal();
        if (kernel.function->uses_malloc()) {
            // Before the launch knows what it may touch, the heap must be there.
            context_.kernel_free(context_.kernel_malloc(1));
            launch.device_malloc = [this](std::uint64_t size) { return context_.kernel_malloc(size); };
            launch.device_free = [this](std::uint64_t address) { context_.kernel_free(address); };
        }
        launch.memory = context_.ranges();
        launch.textures = kernel.textures != nullptr ? kernel.textures : context_.textures().objects();
        launch.set_conditional = [this](std::uint64_t handle, std::uint32_t value) {
            const auto found = values_ == nullptr ? ConditionalValues::iterator{} : values_->find(handle);
            if (values_ == nullptr || found == values_->end())
                return false;
            found->second.store(value, std::memory_order_relaxed);
            return true;
        };
        launch.print = [this](std::string_view text) { context_.print(text); };
        launch.cancel = &context_.cancelled;
        const auto ran = softgpu::run(launch, platform().workers());
        if (ran)
            return CUDA_SUCCESS;
        if (ran.error().kind != FaultKind::cancelled)
            kLog.error("{}", ran.error().text);
        return result_of(ran.error().kind);
    }

    CUresult operator()(const CopyOperation &copy) const {
        if (copy.resolved) {
            driver::run(copy);
            return CUDA_SUCCESS;
        }
        CopyOperation now = copy;
        if (const auto ends = resolve(now); !ends)
            return ends.error();
        driver::run(now);
        return CUDA_SUCCESS;
    }

    CUresult operator()(const FillOperation &fill) const {
        if (fill.resolved) {
            driver::run(fill);
            return CUDA_SUCCESS;
        }
        FillOperation now = fill;
        if (const CUresult checked = resolve(now); checked != CUDA_SUCCESS)
            return checked;
        driver::run(now);
        return CUDA_SUCCESS;
    }

    CUresult operator()(const HostOperation &host) const {
        const HostFunctionScope scope;
        host.function(host.data);
        return CUDA_SUCCESS;
    }

    CUresult operator()(const CallbackOperation &callback) const {
        const HostFunctionScope scope;
        callback.function(callback.stream, context_.error(), callback.data);
        return CUDA_SUCCESS;
    }

    CUresult operator()(const MemoryOperations &list) const {
        for (const CUstreamBatchMemOpParams &one : list.operations) {
            CUresult result = CUDA_SUCCESS;
            switch (one.operation) {
            case CU_STREAM_MEM_OP_WAIT_VALUE_32:
                result = wait_value<std::uint32_t>(context_, stream_, one.waitValue.address,
                                                   one.waitValue.value, one.waitValue.flags);
                break;
            case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                result = wait_value<std::uint64_t>(context_, stream_, one.waitValue.address,
                                                   one.waitValue.value64, one.waitValue.flags);
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_32:
                write_value<std::uint32_t>(one.writeValue.address, one.writeValue.value);
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_64:
                write_value<std::uint64_t>(one.writeValue.address, one.writeValue.value64);
                break;
            default: // barriers and flushes: operations are done in order
                break;
            }
            if (result != CUDA_SUCCESS)
                return result;
        }
        return CUDA_SUCCESS;
    }

    CUresult operator()(const EventRecord &record) const {
        if (!record.in_graph)
            return CUDA_SUCCESS;
        auto now = std::make_shared<Completion>();
        now->complete(CUDA_SUCCESS);
        record.event->record(std::move(now));
        return CUDA_SUCCESS;
    }

    CUresult operator()(const EventWait &wait) const {
        const auto completion = wait.event->completion();
        const auto stop = [this] { return context_.cancelled.load(std::memory_order_acquire); };
        if (completion != nullptr && !completion->wait(stream_.waiter(), Clock::time_point::max(), stop))
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        return CUDA_SUCCESS;
    }

    CUresult operator()(const AllocationOperation &allocation) const {
        return allocate_for_graph(context_, allocation);
    }

    CUresult operator()(const FreeOperation &free) const {
        if (free.pool != nullptr)
            free.pool->free_done(free.address, free.id);
        else
            free_of_graph(free.address);
        return CUDA_SUCCESS;
    }

    CUresult operator()(const ConditionalOperation &conditional) const {
        const auto found = values_->find(conditional.handle);
        if (found == values_->end())
            return CUDA_ERROR_UNKNOWN; // every node's handle is in the list of its graph
        const auto value = [&] { return found->second.load(std::memory_order_relaxed); };
        const auto &bodies = conditional.bodies;
        switch (conditional.type) {
        case CU_GRAPH_COND_TYPE_IF:
            return value() != 0 ? run(*bodies.front()) : bodies.size() > 1 ? run(*bodies[1]) : CUDA_SUCCESS;
        case CU_GRAPH_COND_TYPE_SWITCH: {
            const std::uint32_t which = value();
            return which < bodies.size() ? run(*bodies[which]) : CUDA_SUCCESS;
        }
        case CU_GRAPH_COND_TYPE_WHILE:
            while (value() != 0) {
                // An empty body would go round for ever without looking.
                if (context_.cancelled.load(std::memory_order_acquire))
                    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
                if (const CUresult result = run(*bodies.front()); result != CUDA_SUCCESS)
                    return result;
            }
            return CUDA_SUCCESS;
        }
        return CUDA_ERROR_UNKNOWN; // checked when the node was made
    }

    CUresult operator()(const ListOperation &list) const {
        if (list.list->conditionals.empty())
            return run(*list.list);
        ConditionalValues values;
        for (const auto &[handle, value] : list.list->conditionals)
            values[handle] = value;
        return Executor(context_, stream_, &values).run(*list.list);
    }

  private:
    CUresult run(const OperationList &list) const {
        for (const Operation &operation : list.operations) {
            if (context_.cancelled.load(std::memory_order_acquire))
                return CUDA_ERROR_CONTEXT_IS_DESTROYED;
            if (const CUresult result = std::visit(*this, operation); result != CUDA_SUCCESS)
                return result;
        }
        return CUDA_SUCCESS;
    }

    Context &context_;
    Stream &stream_;
    ConditionalValues *values_; // nullptr: no graph with conditional nodes runs
};

} // namespace

bool in_host_function() { return inside_host_function; }

CUresult execute(const Operation &operation, Context &context, Stream &stream) {
    return std::visit(Executor(context, stream), operation);
}

} // namespace singularity::softgpu::driver
