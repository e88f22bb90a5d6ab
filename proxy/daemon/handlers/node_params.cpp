// SPDX-License-Identifier: GPL-2.0-or-later
#include "node_params.hpp"

#include "batch_operation.hpp"
#include "places.hpp"
#include "proxy/driver-api/wire.hpp"

#include <utility>

namespace singularity::proxyd::handlers {

namespace {
using driver_api::Length;
using driver_api::View;
using protocol::NodeType;
} // namespace

std::optional<CUcontext> NodeParams::context_of(Call &call, std::uint64_t handle) {
    return call.object<CUcontext>(driver_api::kHandleContext, handle != 0 ? handle : call.header().context);
}

CUresult NodeParams::read_kernel(Call &call, const protocol::KernelBody &body, const View &parameters) {
    const auto &shape = body.shape;
    const auto real = call.objects().real(driver_api::kHandleFunction, shape.function);
    const auto in_context = context_of(call, body.context);
    if (!real || *real == 0 || !in_context)
        return CUDA_ERROR_INVALID_HANDLE;
    auto &kernel = params.kernel;
    if (kind_of(shape.function) == driver_api::kHandleKernel) {
        kernel.kern = std::bit_cast<CUkernel>(*real);
        kernel.ctx = *in_context;
    } else {
        kernel.func = std::bit_cast<CUfunction>(*real);
    }
    kernel.gridDimX = shape.grid[0];
    kernel.gridDimY = shape.grid[1];
    kernel.gridDimZ = shape.grid[2];
    kernel.blockDimX = shape.block[0];
    kernel.blockDimY = shape.block[1];
    kernel.blockDimZ = shape.block[2];
    kernel.sharedMemBytes = shape.shared_bytes;
    buffer_.emplace(parameters);
    kernel.extra = buffer_->extra();
    cooperative = (shape.flags & protocol::kLaunchCooperative) != 0;
    return CUDA_SUCCESS;
}

CUresult NodeParams::read_memset(Call &call, const protocol::MemsetBody &body) {
    const auto in_context = context_of(call, body.context);
    if (!in_context)
        return CUDA_ERROR_INVALID_CONTEXT;
    context = *in_context;
    const auto size = body.height == 0 ? Length(0)
                                       : Length(body.pitch) * Length(body.height - 1) +
                                             Length(body.width) * Length(body.element_size);
    if (!size.valid() || (size.value() != 0 && !call.session().reaches(body.destination, size.value())))
        return CUDA_ERROR_INVALID_VALUE;
    params.memset = {.dst = body.destination,
                     .pitch = body.pitch,
                     .value = body.value,
                     .elementSize = body.element_size,
                     .width = body.width,
                     .height = body.height,
                     .ctx = context};
    return CUDA_SUCCESS;
}

CUresult NodeParams::read_batch(Call &call, const protocol::BatchMemOpBody &body, const View &parameters) {
    const auto in_context = context_of(call, body.context);
    if (!in_context || parameters.bytes.size() % sizeof(CUstreamBatchMemOpParams) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t index = 0; index < protocol::element_count<CUstreamBatchMemOpParams>(parameters);
         ++index) {
        const auto &operation =
            operations_.emplace_back(protocol::element<CUstreamBatchMemOpParams>(parameters, index));
        if (!is_allowed(call.session(), operation))
            return CUDA_ERROR_INVALID_VALUE;
    }
    params.memOp = {.ctx = *in_context,
                    .count = static_cast<unsigned>(operations_.size()),
                    .paramArray = operations_.data(),
                    .flags = body.flags};
    return CUDA_SUCCESS;
}

CUresult NodeParams::read(Call &call, NodeType type, const View &body, const View &parameters) {
    params.type = static_cast<CUgraphNodeType>(type);
    switch (type) {
    case NodeType::kernel:
        return read_kernel(call, protocol::element<protocol::KernelBody>(body, 0), parameters);
    case NodeType::memcpy: {
        const auto copy = protocol::element<protocol::MemcpyBody>(body, 0);
        const auto in_context = context_of(call, copy.context);
        const auto box = box_copy(call, copy.destination, copy.source, copy.box, nullptr);
        if (!in_context || !box)
            return in_context ? box.error() : CUDA_ERROR_INVALID_CONTEXT;
        context = *in_context;
        params.memcpy.copyCtx = context;
        params.memcpy.copyParams = *box;
        return CUDA_SUCCESS;
    }
    case NodeType::memset:
        return read_memset(call, protocol::element<protocol::MemsetBody>(body, 0));
    case NodeType::host: {
        const auto host = protocol::element<protocol::HostBody>(body, 0);
        // The graph may run any number of times: the request stays until the session's end.
        callback =
            call.session().callbacks().add({.function = host.function,
                                            .data = host.data,
                                            .stream = 0,
                                            .kind = std::to_underlying(channel::CallbackKind::host_function),
                                            .status = 0},
                                           false);
        params.host = {.fn = &Callbacks::host_function, .userData = callback};
        return CUDA_SUCCESS;
    }
    case NodeType::graph: {
        const auto child = protocol::element<protocol::ChildGraphBody>(body, 0);
        const auto graph = call.object<CUgraph>(driver_api::kHandleGraph, child.graph);
        if (!graph || *graph == nullptr)
            return CUDA_ERROR_INVALID_HANDLE;
        params.graph = {.graph = *graph,
                        .ownership = static_cast<CUgraphChildGraphNodeOwnership>(child.ownership)};
        return CUDA_SUCCESS;
    }
    case NodeType::empty:
        return CUDA_SUCCESS;
    case NodeType::wait_event:
    case NodeType::event_record: {
        const auto event = call.object<CUevent>(driver_api::kHandleEvent,
                                                protocol::element<protocol::EventBody>(body, 0).event);
        if (!event || *event == nullptr)
            return CUDA_ERROR_INVALID_HANDLE;
        if (type == NodeType::wait_event)
            params.eventWait.event = *event;
        else
            params.eventRecord.event = *event;
        return CUDA_SUCCESS;
    }
    case NodeType::batch_mem_op:
        return read_batch(call, protocol::element<protocol::BatchMemOpBody>(body, 0), parameters);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

} // namespace singularity::proxyd::handlers
