// SPDX-License-Identifier: GPL-2.0-or-later
// Primary and other contexts, what is current, limits.
#include "driver/api/entry.hpp"
#include "driver/capture.hpp"
#include "driver/event.hpp"
#include "driver/pool.hpp"
#include "proxy/libcuda/hooks.hpp"

#include <array>
#include <span>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

constexpr unsigned kSettableFlags = CU_CTX_FLAGS_MASK;
constexpr unsigned kApiVersion = 3020; // of cuCtxGetApiVersion: the last that changed the meaning of contexts

// The primary context, active or not, under its mutex.
const std::shared_ptr<Context> &primary_of(Device &device) {
    Device::Primary &primary = device.primary();
    if (primary.context == nullptr) {
        const CUcontext handle = contexts().reserve();
        primary.context = std::make_shared<Context>(device, handle, true, primary.flags);
        contexts().put(handle, primary.context);
    }
    return primary.context;
}

CUresult retain(Device &device, CUcontext *out) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    Device::Primary &primary = device.primary();
    const std::scoped_lock lock(primary.mutex);
    const auto &context = primary_of(device);
    if (primary.retained++ == 0) {
        context->flags = primary.flags;
        context->active = true;
    }
    *out = context->handle();
    return CUDA_SUCCESS;
}

// Ends it; the next one has the same handle.
CUresult reset(Device &device, bool release) {
    Device::Primary &primary = device.primary();
    std::shared_ptr<Context> ended;
    {
        const std::scoped_lock lock(primary.mutex);
        if (release && primary.retained == 0)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (release && --primary.retained != 0)
            return CUDA_SUCCESS;
        if (primary.context == nullptr || !primary.context->active)
            return CUDA_SUCCESS;
        ended = std::exchange(primary.context, std::make_shared<Context>(device, primary.context->handle(),
                                                                         true, primary.flags));
        // A reset takes the state away from those who retained it, and not the context.
        primary.context->active = primary.retained != 0;
        contexts().put(primary.context->handle(), primary.context);
    }
    ended->end();
    singularity_context_destroyed(ended->handle());
    return CUDA_SUCCESS;
}

CUresult set_primary_flags(Device &device, unsigned flags) {
    if ((flags & ~kSettableFlags) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    Device::Primary &primary = device.primary();
    const std::scoped_lock lock(primary.mutex);
    primary.flags = flags;
    if (primary.context != nullptr)
        primary.context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult primary_state(Device &device, unsigned *flags, int *active) {
    if (flags == nullptr || active == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    Device::Primary &primary = device.primary();
    const std::scoped_lock lock(primary.mutex);
    *flags = primary.flags;
    *active = primary.context != nullptr && primary.context->active ? 1 : 0;
    return CUDA_SUCCESS;
}

CUresult create(CUcontext *out, unsigned flags, CUdevice ordinal) {
    return with_device(ordinal, [&](Device &device) {
        if (out == nullptr || (flags & ~kSettableFlags) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        const CUcontext handle = contexts().reserve();
        contexts().put(handle, std::make_shared<Context>(device, handle, false, flags));
        push_current(handle);
        *out = handle;
        return CUDA_SUCCESS;
    });
}

CUresult destroy(CUcontext handle) {
    return with_driver([&] {
        const auto context = contexts().find(handle);
        if (context == nullptr || context->primary())
            return handle == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
        if (contexts().take(handle) == nullptr)
            return CUDA_ERROR_INVALID_CONTEXT; // another thread was faster
        if (current_handle() == handle)
            (void)pop_current();
        context->end();
        singularity_context_destroyed(handle);
        return CUDA_SUCCESS;
    });
}

// Also for a primary context that is not active yet.
CUresult check_handle(CUcontext handle) {
    return contexts().find(handle) == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult push(CUcontext handle) {
    return with_driver([&] {
        if (const CUresult known = check_handle(handle); known != CUDA_SUCCESS)
            return known;
        push_current(handle);
        return CUDA_SUCCESS;
    });
}

CUresult pop(CUcontext *out) {
    return with_driver([&] {
        const auto popped = pop_current();
        if (!popped)
            return popped.error();
        if (out != nullptr)
            *out = *popped;
        return CUDA_SUCCESS;
    });
}

struct LimitRule {
    CUlimit limit;
    std::size_t most;
};
// CIG (CUDA in graphics): cuBLAS asks for it, and takes an error for a reason to stop.
constexpr std::array<LimitRule, 10> kLimits{{
    {CU_LIMIT_STACK_SIZE, std::size_t{512} << 10U},
    {CU_LIMIT_PRINTF_FIFO_SIZE, std::size_t{1} << 34U},
    {CU_LIMIT_MALLOC_HEAP_SIZE, std::size_t{1} << 40U},
    {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 24},
    {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, std::size_t{1} << 20U},
    {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128},
    {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0},
    {CU_LIMIT_SHMEM_SIZE, 0},
    {CU_LIMIT_CIG_ENABLED, 0},
    {CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED, 0},
}};

const LimitRule *rule_of(CUlimit limit) {
    for (const LimitRule &rule : kLimits)
        if (rule.limit == limit)
            return &rule;
    return nullptr;
}

CUresult set_limit(Context &context, CUlimit limit, std::size_t value) {
    const LimitRule *const rule = rule_of(limit);
    if (rule == nullptr)
        return limit >= CU_LIMIT_MAX ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (value > rule->most)
        return CUDA_ERROR_INVALID_VALUE;
    context.limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult get_limit(const Context &context, std::size_t *out, CUlimit limit) {
    if (out == nullptr || limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (rule_of(limit) == nullptr)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *out = context.limits[limit];
    return CUDA_SUCCESS;
}

CUresult synchronize(Context &context) {
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    const CUresult result = context.synchronize();
    trim_pools(context.device());
    return result;
}

// After all that the context's streams have been given so far.
CUresult record_all(CUcontext handle, CUevent event_handle) {
    const auto context = context_of(handle);
    if (!context)
        return context.error();
    const auto event = events().get(event_handle);
    if (!event)
        return event.error();
    const auto stream = (*context)->make_stream(Stream::Role::created, CU_STREAM_NON_BLOCKING, 0);
    submit(*stream, EventRecord{*event, event_handle, false}, {(*context)->outstanding(), true, *event});
    return CUDA_SUCCESS;
}

// All that the context's streams are given from now on comes after the event.
CUresult wait_all(CUcontext handle, CUevent event_handle) {
    const auto context = context_of(handle);
    if (!context)
        return context.error();
    const auto event = events().get(event_handle);
    if (!event)
        return event.error();
    const auto completion = (*event)->completion();
    if (completion == nullptr || completion->done())
        return CUDA_SUCCESS;
    (void)(*context)->legacy_stream();
    for (const auto &stream : (*context)->streams())
        submit(*stream, EmptyOperation{}, {{completion}, true, nullptr});
    return CUDA_SUCCESS;
}

CUresult enable_peer(Context &context, CUcontext handle, unsigned flags) {
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const auto peer = contexts().find(handle);
    if (peer == nullptr || peer.get() == &context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (&peer->device() == &context.device())
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (!context.add_peer(peer->id()))
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    memory_map().touch();
    return CUDA_SUCCESS;
}

CUresult disable_peer(Context &context, CUcontext handle) {
    const auto peer = contexts().find(handle);
    if (peer == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context.remove_peer(peer->id()))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    memory_map().touch();
    return CUDA_SUCCESS;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult singularity_primary_context_handle(CUcontext *context, CUdevice device) {
    return with_device(device, [&](Device &one) {
        const std::scoped_lock lock(one.primary().mutex);
        *context = primary_of(one)->handle();
        return CUDA_SUCCESS;
    });
}

CUresult singularity_processor_places(unsigned char ** /*groups*/, unsigned char ** /*positions*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

const void *singularity_export_table(const CUuuid & /*id*/) { return nullptr; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    return with_device(dev, [&](Device &device) { return retain(device, pctx); });
}
CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    return with_device(dev, [](Device &device) { return reset(device, true); });
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) { return cuDevicePrimaryCtxRelease(dev); }
CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    return with_device(dev, [](Device &device) { return reset(device, false); });
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) { return cuDevicePrimaryCtxReset(dev); }
CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
    return with_device(dev, [&](Device &device) { return set_primary_flags(device, flags); });
}
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
    return cuDevicePrimaryCtxSetFlags(dev, flags);
}
CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
    return with_device(dev, [&](Device &device) { return primary_state(device, flags, active); });
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    return create(pctx, flags, dev);
}
CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam * /*paramsArray*/, int numParams,
                        unsigned int flags, CUdevice dev) {
    return numParams != 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(pctx, flags, dev);
}
CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
    if (ctxCreateParams != nullptr &&
        (ctxCreateParams->numExecAffinityParams != 0 || ctxCreateParams->cigParams != nullptr))
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(pctx, flags, dev);
}
CUresult cuCtxDestroy(CUcontext ctx) { return destroy(ctx); }
CUresult cuCtxDestroy_v2(CUcontext ctx) { return destroy(ctx); }
// Deprecated: attaching is no more than asking what is current.
CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags) {
    return with_any_context([&](Context &context) {
        if (pctx == nullptr || flags != 0)
            return CUDA_ERROR_INVALID_VALUE;
        *pctx = context.handle();
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxDetach(CUcontext ctx) {
    return with_driver([&] { return check_handle(ctx); });
}
CUresult cuCtxPushCurrent(CUcontext ctx) { return push(ctx); }
CUresult cuCtxPushCurrent_v2(CUcontext ctx) { return push(ctx); }
CUresult cuCtxPopCurrent(CUcontext *pctx) { return pop(pctx); }
CUresult cuCtxPopCurrent_v2(CUcontext *pctx) { return pop(pctx); }
CUresult cuCtxSetCurrent(CUcontext ctx) {
    return with_driver([&] {
        if (const CUresult known = ctx == nullptr ? CUDA_SUCCESS : check_handle(ctx); known != CUDA_SUCCESS)
            return known;
        set_current(ctx);
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxGetCurrent(CUcontext *pctx) {
    return with_driver([&] {
        if (pctx == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *pctx = current_handle();
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxGetDevice(CUdevice *device) { return cuCtxGetDevice_v2(device, nullptr); }
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
    return with_driver([&] {
        if (device == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        const CUcontext handle = ctx == nullptr ? current_handle() : ctx;
        const auto context = contexts().find(handle);
        if (context == nullptr)
            return CUDA_ERROR_INVALID_CONTEXT;
        *device = static_cast<CUdevice>(context->device().ordinal());
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxGetFlags(unsigned int *flags) {
    return with_any_context([&](Context &context) {
        if (flags == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *flags = context.flags;
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxSetFlags(unsigned int flags) {
    return with_any_context([&](Context &context) {
        if ((flags & ~kSettableFlags) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        context.flags = flags;
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId) {
    return with_driver([&] {
        const auto context = context_of(ctx);
        if (!context)
            return context.error();
        if (ctxId == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *ctxId = (*context)->id();
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
    return with_driver([&] {
        const auto context = context_of(ctx);
        if (!context)
            return context.error();
        if (version == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *version = kApiVersion;
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    return with_any_context([&](Context &) {
        if (leastPriority != nullptr)
            *leastPriority = 0;
        if (greatestPriority != nullptr)
            *greatestPriority = -5;
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity, CUexecAffinityType type) {
    return with_any_context([&](Context &) {
        if (pExecAffinity == nullptr || type >= CU_EXEC_AFFINITY_TYPE_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        pExecAffinity->type = type;
        pExecAffinity->param.smCount.val = kMultiprocessors;
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxSynchronize() {
    return with_context([](Context &context) { return synchronize(context); });
}
CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    return with_driver([&] {
        const auto context = context_of(ctx);
        return context ? synchronize(**context) : context.error();
    });
}
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    return with_context([&](Context &context) { return set_limit(context, limit, value); });
}
CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit) {
    return with_context([&](Context &context) { return get_limit(context, pvalue, limit); });
}
CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig) {
    return with_context([&](Context &context) {
        if (pconfig == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *pconfig = context.cache_config;
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    return with_context([&](Context &context) {
        if (config > CU_FUNC_CACHE_PREFER_EQUAL)
            return CUDA_ERROR_INVALID_VALUE;
        context.cache_config = config;
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig) {
    return with_context([&](Context &context) {
        if (pConfig == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *pConfig = context.shared_config;
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    return with_context([&](Context &context) {
        if (config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
            return CUDA_ERROR_INVALID_VALUE;
        context.shared_config = config;
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxResetPersistingL2Cache() {
    return with_context([](Context &) { return CUDA_SUCCESS; });
}
CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
    return with_driver([&] { return record_all(hCtx, hEvent); });
}
CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
    return with_driver([&] { return wait_all(hCtx, hEvent); });
}
CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
    return with_context([&](Context &context) { return enable_peer(context, peerContext, Flags); });
}
CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
    return with_context([&](Context &context) { return disable_peer(context, peerContext); });
}

} // extern "C"
