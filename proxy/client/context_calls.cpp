// SPDX-License-Identifier: GPL-2.0-or-later
// cuCtx* and cuDevicePrimaryCtx*: stacks and counts are kept here, the daemon has the contexts themselves.
#include "attachment.hpp"
#include "context.hpp"
#include "memory.hpp"
#include "objects.hpp"
#include "proxy/client/forward.hpp"
#include "proxy/libcuda/hooks.hpp"
#include "proxy/protocol/memory.hpp"

#include <span>

using namespace singularity;
using namespace singularity::client;

namespace {

CUresult session_of(CUdevice device, Session *&session) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    session = process().session(device);
    return session == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult create_in_daemon(Context &context, std::span<const CUexecAffinityParam> affinity) {
    protocol::Message<protocol::CreateContext> message{
        .fixed = {.context = context.handle,
                  .flags = context.flags,
                  .origin = static_cast<std::uint32_t>(context.primary ? protocol::ContextOrigin::primary
                                                                       : protocol::ContextOrigin::created)}};
    if (!affinity.empty())
        message.buffers[0] = protocol::view_of_elements(affinity);
    const auto result = ask(Route{.session = context.session, .context = nullptr}, message);
    if (result != CUDA_SUCCESS)
        return result;
    context.id = process().next_context_id.fetch_add(1);
    context.sticky = CUDA_SUCCESS;
    context.alive.store(true, std::memory_order_release);
    return share_host_memory(context);
}

// Whatever the daemon says, nobody uses it any more. Another daemon must not be asked to share host memory
// with a context that this one has ended.
CUresult end_in_daemon(Context &context) {
    const Undivided undivided;
    const auto result =
        ask(Route{.session = context.session, .context = nullptr},
            protocol::Message<protocol::DestroyContext>{.fixed = {.context = context.handle}});
    context.ended();
    return result;
}

bool valid_flags(unsigned flags) {
    return (flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0 && (flags & 7U) != 3 && (flags & 7U) < 5;
}

CUresult create(CUcontext *out, unsigned flags, CUdevice device,
                std::span<const CUexecAffinityParam> affinity) {
    Session *session = nullptr;
    if (const auto bad = session_of(device, session); bad != CUDA_SUCCESS)
        return bad;
    if (out == nullptr || !valid_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    auto &table = process().table(driver_api::kHandleContext);
    const auto handle = table.reserve();
    auto owned = std::make_unique<Context>(*session, handle, false);
    owned->flags = flags;
    if (const auto result = create_in_daemon(*owned, affinity); result != CUDA_SUCCESS)
        return result;
    auto *const context = owned.release(); // see Context
    auto object = std::make_unique<ContextObject>();
    object->context = context;
    object->session = session;
    table.add(handle, std::move(object));
    push_context(context);
    *out = context->value();
    return CUDA_SUCCESS;
}

CUresult destroy(CUcontext value) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    auto *const context = context_of(value);
    if (context == nullptr || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (const auto bad = usable(context); bad != CUDA_SUCCESS)
        return bad;
    if (current_context == context)
        static_cast<void>(pop_context());
    singularity_context_destroyed(value);
    return end_in_daemon(*context);
}

// `end`: what is left of it goes, whatever the count.
CUresult release_primary(CUdevice device, bool end) {
    Session *session = nullptr;
    if (const auto bad = session_of(device, session); bad != CUDA_SUCCESS)
        return bad;
    auto &context = primary_context(*session);
    {
        const std::scoped_lock lock(session->primary_lock);
        if (!end) {
            if (context.retained == 0)
                return CUDA_ERROR_INVALID_CONTEXT;
            if (--context.retained != 0)
                return CUDA_SUCCESS;
        }
        if (!context.alive)
            return CUDA_SUCCESS;
    }
    // Destructors of context-local storage may call the driver: without locks.
    singularity_context_destroyed(context.value());
    const std::scoped_lock lock(session->primary_lock);
    if (!context.alive || (!end && context.retained != 0))
        return CUDA_SUCCESS;
    return end_in_daemon(context);
}

CUresult chosen(CUcontext value, Context *&context) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    context = value == nullptr ? current_context : context_of(value);
    return usable(context);
}

} // namespace

extern "C" {

CUresult singularity_primary_context_handle(CUcontext *context, CUdevice device) {
    Session *session = nullptr;
    if (const auto bad = session_of(device, session); bad != CUDA_SUCCESS)
        return bad;
    *context = primary_context(*session).value();
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = session_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (pctx == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    auto &context = primary_context(*session);
    const std::scoped_lock lock(session->primary_lock);
    if (!context.alive)
        if (const auto result = create_in_daemon(context, {}); result != CUDA_SUCCESS)
            return result;
    ++context.retained;
    *pctx = context.value();
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) { return release_primary(dev, false); }
CUresult cuDevicePrimaryCtxRelease(CUdevice dev) { return release_primary(dev, false); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) { return release_primary(dev, true); }
CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return release_primary(dev, true); }

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
    Session *session = nullptr;
    if (const auto bad = session_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (!valid_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    primary_context(*session).flags = flags;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
    return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
    Session *session = nullptr;
    if (const auto bad = session_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (flags == nullptr || active == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto &context = primary_context(*session);
    *flags = context.flags;
    *active = context.alive ? 1 : 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    return create(pctx, flags, dev, {});
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                        CUdevice dev) {
    if (numParams < 0 || (numParams > 0 && paramsArray == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    return create(pctx, flags, dev, {paramsArray, static_cast<std::size_t>(numParams)});
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
    if (ctxCreateParams == nullptr)
        return create(pctx, flags, dev, {});
    if (ctxCreateParams->cigParams != nullptr)
        return CUDA_ERROR_NOT_SUPPORTED; // shares the device with a graphics context of this process
    return cuCtxCreate_v3(pctx, ctxCreateParams->execAffinityParams, ctxCreateParams->numExecAffinityParams,
                          flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) { return destroy(ctx); }
CUresult cuCtxDestroy(CUcontext ctx) { return destroy(ctx); }

// Deprecated: a count of its own for each context; nothing but 1 ever worked.
CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (pctx == nullptr || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    *pctx = context->value();
    return CUDA_SUCCESS;
}
CUresult cuCtxDetach(CUcontext ctx) {
    Context *context = nullptr;
    return chosen(ctx, context);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    Context *context = nullptr;
    if (ctx == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (const auto bad = chosen(ctx, context); bad != CUDA_SUCCESS)
        return bad;
    push_context(context);
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }

CUresult cuCtxPopCurrent_v2(CUcontext *pctx) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    auto *const context = pop_context();
    if (context == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (pctx != nullptr)
        *pctx = context->value();
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext *pctx) { return cuCtxPopCurrent_v2(pctx); }

CUresult cuCtxSetCurrent(CUcontext ctx) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (ctx == nullptr) {
        set_top_context(nullptr);
        return CUDA_SUCCESS;
    }
    // cudart makes a primary context current before it retains it.
    auto *const context = context_of(ctx);
    if (context == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->primary && !context->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    set_top_context(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (pctx == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = current_context == nullptr ? nullptr : current_context->value();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) { return cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    // A primary context that is not active has a device, too.
    const auto *const context = ctx == nullptr ? current_context : context_of(ctx);
    if (context == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (device == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->session->ordinal();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (flags == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (!valid_flags(flags))
        return CUDA_ERROR_INVALID_VALUE;
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId) {
    Context *context = nullptr;
    if (const auto bad = chosen(ctx, context); bad != CUDA_SUCCESS)
        return bad;
    if (ctxId == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *ctxId = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
    constexpr unsigned kVersion = 3020; // what contexts of cuCtxCreate_v2 and later, and primary ones, say
    Context *context = nullptr;
    if (const auto bad = chosen(ctx, context); bad != CUDA_SUCCESS)
        return bad;
    if (version == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *version = kVersion;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (leastPriority != nullptr)
        *leastPriority = context->session->device().stream_priority_least;
    if (greatestPriority != nullptr)
        *greatestPriority = context->session->device().stream_priority_greatest;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity, CUexecAffinityType type) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (pExecAffinity == nullptr || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    pExecAffinity->type = type;
    pExecAffinity->param.smCount.val =
        static_cast<unsigned>(context->session->attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    return CUDA_SUCCESS;
}

// A context's memory is out of reach of any other device's.
CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    Context *peer = nullptr;
    if (const auto bad = chosen(peerContext, peer); bad != CUDA_SUCCESS)
        return bad;
    return peer->session == context->session ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    Context *peer = nullptr;
    if (const auto bad = chosen(peerContext, peer); bad != CUDA_SUCCESS)
        return bad;
    return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

} // extern "C"
