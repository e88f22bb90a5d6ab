// SPDX-License-Identifier: GPL-2.0-or-later
// What streams and events are asked that the client knows, and what it must notice on the way.
#include "capture_modes.hpp"
#include "copy.hpp"
#include "proxy/protocol/launch.hpp"
#include "proxy/protocol/memory.hpp"
#include "stream_memory.hpp"

#include <cstring>

using namespace singularity;
using namespace singularity::client;

namespace {

// The stream's route, and its object where it is none of the default ones.
CUresult stream_of(CUstream stream, std::uint64_t &wire, Route &route, const StreamObject *&object) {
    if (const auto bad = stream_route(stream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    object =
        wire == protocol::kLegacyStream ? nullptr : find_as<StreamObject>(driver_api::kHandleStream, wire);
    return CUDA_SUCCESS;
}

bool is_interprocess(const EventObject &event) { return (event.flags & CU_EVENT_INTERPROCESS) != 0; }

// The daemon has carried out what was sent before: other processes may hear of it now.
CUresult reached(const Route &route) { return ask(route, protocol::Message<protocol::MemoryInfo>{}); }

template <class Request>
CUresult record(std::expected<Request, Error> &request) {
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleEvent, request->hEvent); bad != CUDA_SUCCESS)
        return bad;
    const auto *const event = find_as<EventObject>(driver_api::kHandleEvent, request->hEvent);
    if (const auto bad = check_handle(driver_api::kHandleStream, request->hStream); bad != CUDA_SUCCESS)
        return bad;
    const auto result = send_async(*request);
    if (result != CUDA_SUCCESS || event == nullptr || !is_interprocess(*event))
        return result;
    return reached(last_route());
}

} // namespace

extern "C" {

CUresult cuStreamGetPriority(CUstream hStream, int *priority) {
    std::uint64_t wire = 0;
    Route route;
    const StreamObject *object = nullptr;
    if (const auto bad = stream_of(hStream, wire, route, object); bad != CUDA_SUCCESS)
        return bad;
    if (priority == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *priority = object == nullptr ? 0 : object->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags) {
    std::uint64_t wire = 0;
    Route route;
    const StreamObject *object = nullptr;
    if (const auto bad = stream_of(hStream, wire, route, object); bad != CUDA_SUCCESS)
        return bad;
    if (flags == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = object == nullptr ? unsigned{CU_STREAM_DEFAULT} : object->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId) {
    std::uint64_t wire = 0;
    Route route;
    const StreamObject *object = nullptr;
    if (const auto bad = stream_of(hStream, wire, route, object); bad != CUDA_SUCCESS)
        return bad;
    if (streamId == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    // Unique over all streams of all contexts: handles are, and the legacy streams take their contexts'
    // numbers.
    *streamId = object == nullptr ? route.context->handle : wire;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx) {
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(hStream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    if (pctx == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = route.context->value();
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx) {
    const auto result = cuStreamGetCtx(hStream, pCtx);
    if (result == CUDA_SUCCESS && pGreenCtx != nullptr)
        *pGreenCtx = nullptr;
    return result;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device) {
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(hStream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    if (device == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *device = route.session->ordinal();
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream hStream) {
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(hStream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    const auto result = synchronize_stream(route, wire);
    if (result == CUDA_SUCCESS)
        stream_is_done(*route.context, wire);
    return result;
}

CUresult cuCtxSynchronize() {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    const auto result = synchronize_context({.session = context->session, .context = context});
    if (result == CUDA_SUCCESS)
        stream_is_done(*context, 0);
    return result;
}

// An event of another device's daemon: its stream cannot wait there, so this thread does.
CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(hStream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    const auto *const event =
        find_as<EventObject>(driver_api::kHandleEvent, std::bit_cast<std::uint64_t>(hEvent));
    if (event == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->session != route.session)
        return cuEventSynchronize(hEvent);
    driver_api::StreamWaitEventRequest request;
    request.hStream = wire;
    request.hEvent = event->handle;
    request.Flags = Flags;
    const Encoded encoded([&](std::span<std::byte> storage) { return encode(request, storage); });
    const auto result = submit(route, encoded.bytes());
    return result == CUDA_SUCCESS && is_interprocess(*event) ? reached(route) : result;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
    auto request = driver_api::EventRecordCall::request(ApiId::kEventRecord, hEvent, hStream);
    return record(request);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
    auto request =
        driver_api::EventRecordWithFlagsCall::request(ApiId::kEventRecordWithFlags, hEvent, hStream, flags);
    return record(request);
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out) {
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(hStream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    if (value_out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    return ask(route,
               protocol::Message<protocol::GetStreamAttribute>{
                   .fixed = {.stream = wire, .attribute = static_cast<std::uint32_t>(attr)}},
               0, [&](const auto &reply) {
                   static_assert(sizeof(*value_out) == sizeof(reply.fixed.value));
                   std::memcpy(value_out, reply.fixed.value.data(), sizeof(*value_out));
               });
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value) {
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(hStream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    if (value == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    protocol::Message<protocol::SetStreamAttribute> message{
        .fixed = {.stream = wire, .attribute = static_cast<std::uint32_t>(attr)}};
    std::memcpy(message.fixed.value.data(), value, sizeof(*value));
    return ask(route, message);
}

} // extern "C"
