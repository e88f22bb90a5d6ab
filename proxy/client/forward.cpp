// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/client/forward.hpp"

#include "context.hpp"
#include "log.hpp"
#include "process.hpp"
#include "proxy/driver-api/api.hpp"

#include <cerrno>
#include <utility>

namespace singularity::client {

namespace {

// What the handles of the call that is being prepared have said.
struct Prepared {
    Route route;
    bool decided = false; // by a stream or context: nothing else counts
};
// Every launch uses it from more than one source file.
thread_local Prepared prepared __attribute__((tls_model("initial-exec")));
thread_local Route on_device;
thread_local Route route_of_last_call;

CUresult failed(CUresult result) {
    drop_route();
    return result;
}

} // namespace

std::uint64_t new_handle(unsigned kind) { return process().table(kind).reserve(); }

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

void drop_route() { prepared = {}; }

void prefer_route(const Route &route, bool decides) {
    if (prepared.decided || route.session == nullptr || (!decides && prepared.route.session != nullptr))
        return;
    prepared = {.route = route, .decided = decides};
}

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
