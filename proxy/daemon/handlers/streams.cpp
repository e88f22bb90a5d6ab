// SPDX-License-Identifier: GPL-2.0-or-later
// Attributes of streams, and what a capture has so far.
#include "handlers.hpp"
#include "shared_events.hpp"

#include <bit>
#include <cstring>

namespace singularity::proxyd::handlers {

CUresult handle(Call &call, const Request<protocol::GetStreamAttribute> &request,
                Reply<protocol::GetStreamAttribute> &reply) {
    const auto stream = call.stream(request.fixed.stream);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (call.driver().cuStreamGetAttribute == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUstreamAttrValue value{};
    static_assert(sizeof(value) == sizeof(reply.fixed.value));
    const auto result = call.driver().cuStreamGetAttribute(
        *stream, static_cast<CUstreamAttrID>(request.fixed.attribute), &value);
    std::memcpy(reply.fixed.value.data(), &value, sizeof(value));
    return result;
}

CUresult handle(Call &call, const Request<protocol::SetStreamAttribute> &request,
                Reply<protocol::SetStreamAttribute> & /*reply*/) {
    const auto stream = call.stream(request.fixed.stream);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (call.driver().cuStreamSetAttribute == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUstreamAttrValue value{};
    std::memcpy(&value, request.fixed.value.data(), sizeof(value));
    return call.driver().cuStreamSetAttribute(*stream, static_cast<CUstreamAttrID>(request.fixed.attribute),
                                              &value);
}

CUresult handle(Call &call, const Request<protocol::CaptureInfo> &request,
                Reply<protocol::CaptureInfo> &reply) {
    const auto stream = call.stream(request.fixed.stream);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    const auto &driver = call.driver();
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUgraphNode *dependencies = nullptr;
    const CUgraphEdgeData *edges = nullptr;
    std::size_t count = 0;
    auto result = CUDA_ERROR_NOT_SUPPORTED;
    if (driver.cuStreamGetCaptureInfo_v3 != nullptr)
        result =
            driver.cuStreamGetCaptureInfo_v3(*stream, &status, &id, &graph, &dependencies, &edges, &count);
    // A driver before edge data, or edges that version 2 can say as well.
    if ((result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_LOSSY_QUERY) &&
        driver.cuStreamGetCaptureInfo_v2 != nullptr)
        result = driver.cuStreamGetCaptureInfo_v2(*stream, &status, &id, &graph, &dependencies, &count);
    if (result != CUDA_SUCCESS)
        return result;
    reply.fixed.status = static_cast<std::uint32_t>(status);
    reply.fixed.id = id;
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return result;
    auto &objects = call.objects();
    reply.fixed.graph = objects.name_of(driver_api::kHandleGraph, std::bit_cast<std::uint64_t>(graph));
    // Nodes go with their graph.
    const ObjectTable::Origin origin(call.header().context, reply.fixed.graph);
    const auto nodes = call.elements<std::uint64_t>(dependencies == nullptr ? 0 : count);
    for (std::size_t index = 0; index < nodes.size(); ++index)
        nodes[index] =
            objects.name_of(driver_api::kHandleGraphNode, std::bit_cast<std::uint64_t>(dependencies[index]));
    reply.buffers[0] = protocol::view_of_elements(std::span<const std::uint64_t>(nodes));
    if (edges != nullptr)
        reply.buffers[1] = protocol::view_of_elements(std::span(edges, nodes.size()));
    return result;
}

namespace {
// What is done with the events of others (driver_rules.cpp).
bool can_share_events(const driver_api::Backend &driver) {
    return driver.cuEventCreate != nullptr && driver.cuEventDestroy_v2 != nullptr &&
           driver.cuEventQuery != nullptr && driver.cuStreamWaitEvent != nullptr;
}
} // namespace

CUresult handle(Call &call, const Request<protocol::ShareEvent> &request,
                Reply<protocol::ShareEvent> & /*reply*/) {
    if (!can_share_events(call.driver()))
        return CUDA_ERROR_NOT_SUPPORTED;
    const auto event = call.object<CUevent>(driver_api::kHandleEvent, request.fixed.event);
    if (!event || *event == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    return SharedEvents::all().share(
               request.fixed.key, call.session().place().device.number,
               {.session = &call.session(), .handle = request.fixed.event, .real = *event})
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult handle(Call &call, const Request<protocol::OpenEvent> &request,
                Reply<protocol::OpenEvent> & /*reply*/) {
    const auto &driver = call.driver();
    auto &all = SharedEvents::all();
    const auto device = call.session().place().device.number;
    if (!can_share_events(driver))
        return CUDA_ERROR_NOT_SUPPORTED;
    const bool again = active_trace != nullptr && active_trace->repeating;
    if (!again && !all.can_open(request.fixed.key, device))
        return CUDA_ERROR_INVALID_VALUE;
    CUevent event = nullptr;
    if (const auto result = driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING); result != CUDA_SUCCESS)
        return result;
    call.add(driver_api::kHandleEvent, request.fixed.event, event);
    if (all.open(request.fixed.key, device,
                 {.session = &call.session(), .handle = request.fixed.event, .real = event}, again))
        return CUDA_SUCCESS;
    // Its maker has ended it just now.
    call.objects().remove(driver_api::kHandleEvent, request.fixed.event);
    static_cast<void>(driver.cuEventDestroy_v2(event));
    return CUDA_ERROR_INVALID_VALUE;
}

} // namespace singularity::proxyd::handlers
