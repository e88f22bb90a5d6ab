// SPDX-License-Identifier: GPL-2.0-or-later
// Handle parameters of the program's calls: what travels instead, and where they say that a call goes.
#include "context.hpp"
#include "objects.hpp"
#include "process.hpp"
#include "proxy/client/forward.hpp"
#include "proxy/libcuda/entry.hpp"
#include "proxy/protocol/ids.hpp"

namespace singularity::client {

namespace {

CUresult no_route(CUresult result) {
    drop_route();
    return result;
}

CUresult check_stream(std::uint64_t &value) {
    constexpr std::uint64_t kPerThread = 2; // CU_STREAM_PER_THREAD
    if (value <= kPerThread) {
        auto *const context = current_context;
        if (const auto bad = healthy(context); bad != CUDA_SUCCESS)
            return no_route(bad);
        const bool per_thread = value == kPerThread || (value == 0 && libcuda::per_thread_default_stream());
        if (per_thread) {
            if (const auto bad = per_thread_stream(*context, value); bad != CUDA_SUCCESS)
                return no_route(bad);
        } else {
            value = protocol::kLegacyStream;
        }
        prefer_route({.session = context->session, .context = context}, true);
        return CUDA_SUCCESS;
    }
    const auto *const object = find_object(driver_api::kHandleStream, value);
    if (object == nullptr)
        return no_route(CUDA_ERROR_INVALID_HANDLE);
    prefer_route({.session = object->session, .context = object->context}, true);
    return CUDA_SUCCESS;
}

} // namespace

CUresult check_handle(unsigned kind, std::uint64_t &value) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return no_route(bad);
    switch (kind) {
    case driver_api::kHandleStream:
        return check_stream(value);
    case driver_api::kHandleContext: {
        if (value == 0) {
            if (const auto bad = usable(current_context); bad != CUDA_SUCCESS)
                return no_route(bad);
            value = current_context->handle;
        }
        auto *const context = context_of(std::bit_cast<CUcontext>(value));
        if (context == nullptr)
            return no_route(CUDA_ERROR_INVALID_CONTEXT);
        if (const auto bad = usable(context); bad != CUDA_SUCCESS)
            return no_route(bad);
        prefer_route({.session = context->session, .context = context}, true);
        return CUDA_SUCCESS;
    }
    case driver_api::kHandleLibrary:
    case driver_api::kHandleKernel:
    case driver_api::kHandleFunction: {
        // A kernel may stand where a function is expected.
        const auto actual = kind_of(value) == driver_api::kHandleKernel && kind == driver_api::kHandleFunction
                                ? unsigned{driver_api::kHandleKernel}
                                : kind;
        auto *const object = find_object(actual, value);
        if (object == nullptr)
            return no_route(CUDA_ERROR_INVALID_HANDLE);
        if (actual == driver_api::kHandleFunction) {
            prefer_route({.session = object->session, .context = object->context}, false);
            return CUDA_SUCCESS;
        }
        Route route;
        if (const auto bad = route_without_context(route); bad != CUDA_SUCCESS)
            return no_route(bad);
        if (const auto bad = ensure_code(*object, *route.session); bad != CUDA_SUCCESS)
            return no_route(bad);
        return CUDA_SUCCESS;
    }
    default: {
        const auto *const object = find_object(kind, value);
        if (object == nullptr)
            return no_route(CUDA_ERROR_INVALID_HANDLE);
        auto *context = object->context;
        // Graphs belong to a device here, not to a context.
        if (kind == driver_api::kHandleGraph || kind == driver_api::kHandleGraphNode ||
            kind == driver_api::kHandleGraphExec)
            if (current_context != nullptr && current_context->session == object->session &&
                current_context->alive)
                context = current_context;
        prefer_route({.session = object->session, .context = context}, false);
        return CUDA_SUCCESS;
    }
    }
}

} // namespace singularity::client
