// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/client/forward.hpp"

#include "context.hpp"
#include "log.hpp"
#include "objects.hpp"
#include "process.hpp"
#include "proxy/driver-api/api.hpp"
#include "proxy/libcuda/entry.hpp"
#include "proxy/protocol/ids.hpp"

#include <cerrno>
#include <utility>

namespace singularity::client {

namespace {

// What the handles of the call that is being prepared have said.
struct Prepared {
    Route route;
    bool decided = false; // by a stream or context: nothing else counts
};
thread_local Prepared prepared;
thread_local Route on_device;
thread_local Route route_of_last_call;

void prepare(Session *session, Context *context, bool decides) {
    if (prepared.decided || session == nullptr || (!decides && prepared.route.session != nullptr))
        return;
    prepared.route = {.session = session, .context = context};
    prepared.decided = decides;
}

CUresult failed(CUresult result) {
    drop_route();
    return result;
}

CUresult check_stream(std::uint64_t &value) {
    constexpr std::uint64_t kPerThread = 2; // CU_STREAM_PER_THREAD
    if (value <= kPerThread) {
        auto *const context = current_context;
        if (const auto bad = healthy(context); bad != CUDA_SUCCESS)
            return failed(bad);
        const bool per_thread = value == kPerThread || (value == 0 && libcuda::per_thread_default_stream());
        if (per_thread) {
            if (const auto bad = per_thread_stream(*context, value); bad != CUDA_SUCCESS)
                return failed(bad);
        } else {
            value = protocol::kLegacyStream;
        }
        prepare(context->session, context, true);
        return CUDA_SUCCESS;
    }
    const auto *const object = find_object(driver_api::kHandleStream, value);
    if (object == nullptr)
        return failed(CUDA_ERROR_INVALID_HANDLE);
    prepare(object->session, object->context, true);
    return CUDA_SUCCESS;
}

} // namespace

std::uint64_t new_handle(unsigned kind) { return process().table(kind).reserve(); }

CUresult check_handle(unsigned kind, std::uint64_t &value) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return failed(bad);
    switch (kind) {
    case driver_api::kHandleStream:
        return check_stream(value);
    case driver_api::kHandleContext: {
        if (value == 0) {
            if (const auto bad = usable(current_context); bad != CUDA_SUCCESS)
                return failed(bad);
            value = current_context->handle;
        }
        auto *const context = context_of(std::bit_cast<CUcontext>(value));
        if (context == nullptr)
            return failed(CUDA_ERROR_INVALID_CONTEXT);
        if (const auto bad = usable(context); bad != CUDA_SUCCESS)
            return failed(bad);
        prepare(context->session, context, true);
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
            return failed(CUDA_ERROR_INVALID_HANDLE);
        if (actual == driver_api::kHandleFunction) {
            prepare(object->session, object->context, false);
            return CUDA_SUCCESS;
        }
        Route route;
        if (const auto bad = route_without_context(route); bad != CUDA_SUCCESS)
            return failed(bad);
        if (const auto bad = ensure_code(*object, *route.session); bad != CUDA_SUCCESS)
            return failed(bad);
        return CUDA_SUCCESS;
    }
    default: {
        const auto *const object = find_object(kind, value);
        if (object == nullptr)
            return failed(CUDA_ERROR_INVALID_HANDLE);
        auto *context = object->context;
        // Graphs belong to a device here, not to a context.
        if (kind == driver_api::kHandleGraph || kind == driver_api::kHandleGraphNode ||
            kind == driver_api::kHandleGraphExec)
            if (current_context != nullptr && current_context->session == object->session &&
                current_context->alive)
                context = current_context;
        prepare(object->session, context, false);
        return CUDA_SUCCESS;
    }
    }
}

CUresult refused(const Error &error) {
    drop_route();
    kLog.debug("{}", error.message());
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    return CUDA_ERROR_INVALID_VALUE;
}

OnDevice::OnDevice(CUdevice device) : before_(on_device), result_(not_ready()) {
    if (result_ != CUDA_SUCCESS)
        return;
    auto *const session = process().session(device);
    if (session == nullptr) {
        result_ = CUDA_ERROR_INVALID_DEVICE;
        return;
    }
    auto *const context =
        current_context != nullptr && current_context->session == session && current_context->alive
            ? current_context
            : nullptr;
    on_device = {.session = session, .context = context};
}

OnDevice::~OnDevice() { on_device = before_; }

OnContext::OnContext(Context &context) : before_(std::exchange(current_context, &context)) {}

OnContext::~OnContext() { current_context = before_; }

void drop_route() { prepared = {}; }

const Route &last_route() { return route_of_last_call; }

CUresult route_without_context(Route &route) {
    if (on_device.session != nullptr) {
        route = on_device;
        return CUDA_SUCCESS;
    }
    auto *const context = current_context;
    if (context != nullptr && context->alive.load(std::memory_order_acquire)) {
        route = {.session = context->session, .context = context};
        return CUDA_SUCCESS;
    }
    route = {.session = process().sessions.front().get(), .context = nullptr};
    return CUDA_SUCCESS;
}

CUresult take_route(Route &route, bool context_free) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return failed(bad);
    const auto wanted = std::exchange(prepared, {});
    if (on_device.session != nullptr) {
        route = on_device;
    } else if (wanted.route.session != nullptr) {
        route = wanted.route;
    } else if (context_free) {
        if (const auto bad = route_without_context(route); bad != CUDA_SUCCESS)
            return bad;
    } else {
        if (const auto bad = usable(current_context); bad != CUDA_SUCCESS)
            return bad;
        route = {.session = current_context->session, .context = current_context};
    }
    route_of_last_call = route;
    return route.context == nullptr ? CUDA_SUCCESS : route.context->sticky.load(std::memory_order_relaxed);
}

bool needs_no_context(ApiId api) {
    switch (api) {
    case ApiId::kLibraryGetKernel:
    case ApiId::kLibraryGetKernelCount:
    case ApiId::kLibraryEnumerateKernels:
    case ApiId::kLibraryUnload:
    case ApiId::kGraphCreate:
    case ApiId::kKernelGetAttribute:
    case ApiId::kKernelSetAttribute:
    case ApiId::kKernelSetCacheConfig:
    case ApiId::kTensorMapEncodeTiled:
    case ApiId::kTensorMapEncodeIm2col:
    case ApiId::kTensorMapEncodeIm2colWide:
    case ApiId::kTensorMapReplaceAddress:
        return true;
    default:
        return false;
    }
}

bool tells_of_failure(ApiId api) {
    switch (api) {
    case ApiId::kGraphInstantiate:
    case ApiId::kGraphInstantiateV2:
    case ApiId::kGraphExecUpdate:
        return true;
    default:
        return false;
    }
}

CUresult failure_of(const Error &error) {
    switch (error.code) {
    case ENOTCONN:
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case EMSGSIZE:
        kLog.warning("{}", error.message());
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        kLog.error("{}", error.message());
        return CUDA_ERROR_UNKNOWN;
    }
}

CUresult broken(const Route &route, const Error &error) {
    if (route.session->dead())
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    kLog.error("{}", error.message());
    route.session->end().mark_dead();
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult submit(const Route &route, std::span<const std::byte> message) {
    if (message.empty())
        return CUDA_ERROR_NOT_SUPPORTED; // longer than a record
    auto record =
        route.session->end().begin(route.context == nullptr ? 0 : route.context->handle, message.size());
    if (!record)
        return failure_of(record.error());
    std::memcpy(record->message().data(), message.data(), message.size());
    record->commit();
    return CUDA_SUCCESS;
}

Exchange::Exchange(const Route &route, std::span<const std::byte> message, std::size_t reply_limit) {
    auto &end = route.session->end();
    if (message.empty()) {
        failure_ = CUDA_ERROR_NOT_SUPPORTED;
        return;
    }
    auto pending = end.prepare_reply(reply_limit);
    if (!pending) {
        failure_ = failure_of(pending.error());
        return;
    }
    pending_.emplace(std::move(*pending));
    {
        auto record =
            end.begin(route.context == nullptr ? 0 : route.context->handle, message.size(), &*pending_);
        if (!record) {
            failure_ = failure_of(record.error());
            return;
        }
        std::memcpy(record->message().data(), message.data(), message.size());
        record->commit();
    }
    const auto reply = pending_->wait();
    if (!reply) {
        failure_ =
            reply.error().code == ENOTCONN ? CUDA_ERROR_DEVICE_UNAVAILABLE : broken(route, reply.error());
        return;
    }
    route.session->await_packets(reply->packets);
    reply_ = reply->message;
}

} // namespace singularity::client
