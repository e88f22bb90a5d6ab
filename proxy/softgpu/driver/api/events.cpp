// SPDX-License-Identifier: GPL-2.0-or-later
// Events.
#include "driver/api/entry.hpp"
#include "driver/capture.hpp"
#include "driver/event.hpp"
#include "driver/pool.hpp"

#include <chrono>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

constexpr unsigned kEventFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

CUresult create(Context &context, CUevent *out, unsigned flags) {
    const bool interprocess = (flags & CU_EVENT_INTERPROCESS) != 0;
    if (out == nullptr || (flags & ~kEventFlags) != 0 ||
        (interprocess && (flags & CU_EVENT_DISABLE_TIMING) == 0))
        return CUDA_ERROR_INVALID_VALUE;
    auto event = std::make_shared<Event>(context.shared_from_this(), flags);
    event->handle = events().reserve();
    events().put(event->handle, event);
    *out = event->handle;
    return CUDA_SUCCESS;
}

CUresult destroy(CUevent handle) {
    return events().take(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult record(Stream &stream, CUevent handle, unsigned flags) {
    if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const auto event = events().get(handle);
    if (!event)
        return event.error();
    if (&(*event)->context() != &stream.context())
        return CUDA_ERROR_INVALID_HANDLE;
    const bool external = (flags & CU_EVENT_RECORD_EXTERNAL) != 0;
    if (const auto captured = capture_record(stream, *event, external))
        return *captured;
    if (external)
        return CUDA_ERROR_ILLEGAL_STATE; // it means something in captured streams alone
    submit(stream, EventRecord{*event, handle, false}, {{}, true, *event});
    return CUDA_SUCCESS;
}

// Those recorded in a capture have no time and no end.
CUresult check_captured(Event &event) {
    const std::scoped_lock lock(graph_mutex());
    if (event.captured_in == nullptr)
        return CUDA_SUCCESS;
    event.captured_in->invalidated = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult query(Event &event) {
    if (const CUresult captured = check_captured(event); captured != CUDA_SUCCESS)
        return captured;
    const auto completion = event.completion();
    if (completion != nullptr && !completion->done())
        return event.context().error() != CUDA_SUCCESS ? event.context().error() : CUDA_ERROR_NOT_READY;
    return event.context().error();
}

CUresult synchronize(Context &context, Event &event) {
    if (const CUresult captured = check_captured(event); captured != CUDA_SUCCESS)
        return captured;
    const auto completion = event.completion();
    const CUresult result = completion == nullptr ? CUDA_SUCCESS : wait_for(event.context(), {completion});
    trim_pools(context.device());
    return result;
}

CUresult elapsed(float *out, CUevent start_handle, CUevent end_handle) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto start = events().get(start_handle);
    const auto end = events().get(end_handle);
    if (!start || !end)
        return CUDA_ERROR_INVALID_HANDLE;
    const auto first = (*start)->completion();
    const auto last = (*end)->completion();
    if (first == nullptr || last == nullptr ||
        (((*start)->flags | (*end)->flags) & CU_EVENT_DISABLE_TIMING) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!first->done() || !last->done())
        return CUDA_ERROR_NOT_READY;
    *out = std::chrono::duration<float, std::milli>(last->finished() - first->finished()).count();
    return CUDA_SUCCESS;
}

} // namespace

Handles<Event, CUevent, HandleKind::event> &events() {
    static auto &table = *new Handles<Event, CUevent, HandleKind::event>; // outlives every thread
    return table;
}

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags) {
    return with_context([&](Context &context) { return create(context, phEvent, Flags); });
}
CUresult cuEventDestroy(CUevent hEvent) {
    return with_driver([&] { return destroy(hEvent); });
}
CUresult cuEventDestroy_v2(CUevent hEvent) {
    return with_driver([&] { return destroy(hEvent); });
}
CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
    return with_stream(
        hStream, [&](Context &, Stream &stream) { return record(stream, hEvent, CU_EVENT_RECORD_DEFAULT); });
}
CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
    return with_stream(hStream, [&](Context &, Stream &stream) { return record(stream, hEvent, flags); });
}
CUresult cuEventQuery(CUevent hEvent) {
    return with_context([&](Context &) {
        const auto event = events().get(hEvent);
        return event ? query(**event) : event.error();
    });
}
CUresult cuEventSynchronize(CUevent hEvent) {
    return with_context([&](Context &context) {
        const auto event = events().get(hEvent);
        return event ? synchronize(context, **event) : event.error();
    });
}
CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    return with_context([&](Context &) { return elapsed(pMilliseconds, hStart, hEnd); });
}
CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    return with_context([&](Context &) { return elapsed(pMilliseconds, hStart, hEnd); });
}

} // extern "C"
