// SPDX-License-Identifier: GPL-2.0-or-later
// Nodes of graphs: made, changed, asked.
#include "functions.hpp"
#include "handlers.hpp"
#include "node_params.hpp"
#include "places.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

namespace singularity::proxyd::handlers {

namespace {

using protocol::NodeType;

// nullptr: the driver has no such function.
template <class Function, class... Arguments>
CUresult if_there(Function function, Arguments... arguments) {
    return function == nullptr ? CUDA_ERROR_NOT_SUPPORTED : function(arguments...);
}

std::optional<std::vector<CUgraphNode>> nodes_of(Call &call, const driver_api::View &view) {
    std::vector<CUgraphNode> nodes;
    for (std::size_t index = 0; index < protocol::element_count<std::uint64_t>(view); ++index) {
        const auto node = call.object<CUgraphNode>(driver_api::kHandleGraphNode,
                                                   protocol::element<std::uint64_t>(view, index));
        if (!node || *node == nullptr)
            return std::nullopt;
        nodes.push_back(*node);
    }
    return nodes;
}

// The function of the node's type; cuGraphAddNode for those that have none, and where edges have data.
CUresult add(const driver_api::Backend &driver, CUgraphNode *node, CUgraph graph,
             std::span<const CUgraphNode> after, const driver_api::View &edges, NodeParams &node_params) {
    auto &params = node_params.params;
    if (!edges.present)
        switch (params.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: {
            const CUDA_KERNEL_NODE_PARAMS_v2 kernel =
                std::bit_cast<CUDA_KERNEL_NODE_PARAMS_v2>(params.kernel);
            return if_there(driver.cuGraphAddKernelNode_v2, node, graph, after.data(), after.size(), &kernel);
        }
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return if_there(driver.cuGraphAddMemcpyNode, node, graph, after.data(), after.size(),
                            &params.memcpy.copyParams, node_params.context);
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            const CUDA_MEMSET_NODE_PARAMS memset{.dst = params.memset.dst,
                                                 .pitch = params.memset.pitch,
                                                 .value = params.memset.value,
                                                 .elementSize = params.memset.elementSize,
                                                 .width = params.memset.width,
                                                 .height = params.memset.height};
            return if_there(driver.cuGraphAddMemsetNode, node, graph, after.data(), after.size(), &memset,
                            node_params.context);
        }
        case CU_GRAPH_NODE_TYPE_HOST: {
            const CUDA_HOST_NODE_PARAMS host{.fn = params.host.fn, .userData = params.host.userData};
            return if_there(driver.cuGraphAddHostNode, node, graph, after.data(), after.size(), &host);
        }
        case CU_GRAPH_NODE_TYPE_GRAPH:
            if (params.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
                return if_there(driver.cuGraphAddChildGraphNode, node, graph, after.data(), after.size(),
                                params.graph.graph);
            break;
        case CU_GRAPH_NODE_TYPE_EMPTY:
            return if_there(driver.cuGraphAddEmptyNode, node, graph, after.data(), after.size());
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return if_there(driver.cuGraphAddEventWaitNode, node, graph, after.data(), after.size(),
                            params.eventWait.event);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return if_there(driver.cuGraphAddEventRecordNode, node, graph, after.data(), after.size(),
                            params.eventRecord.event);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            const auto batch = std::bit_cast<CUDA_BATCH_MEM_OP_NODE_PARAMS>(params.memOp);
            return if_there(driver.cuGraphAddBatchMemOpNode, node, graph, after.data(), after.size(), &batch);
        }
        default:
            break;
        }
    std::vector<CUgraphEdgeData> data;
    for (std::size_t index = 0; index < protocol::element_count<CUgraphEdgeData>(edges); ++index)
        data.push_back(protocol::element<CUgraphEdgeData>(edges, index));
    return if_there(driver.cuGraphAddNode_v2, node, graph, after.data(),
                    edges.present ? data.data() : nullptr, after.size(), &params);
}

CUresult make_cooperative(const driver_api::Backend &driver, CUgraphNode node) {
    CUlaunchAttributeValue value{};
    value.cooperative = 1;
    return if_there(driver.cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
}

CUresult set(const driver_api::Backend &driver, CUgraphNode node, const NodeParams &node_params) {
    const auto &params = node_params.params;
    switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        const auto kernel = std::bit_cast<CUDA_KERNEL_NODE_PARAMS_v2>(params.kernel);
        return if_there(driver.cuGraphKernelNodeSetParams_v2, node, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return if_there(driver.cuGraphMemcpyNodeSetParams, node, &params.memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        const CUDA_MEMSET_NODE_PARAMS memset{.dst = params.memset.dst,
                                             .pitch = params.memset.pitch,
                                             .value = params.memset.value,
                                             .elementSize = params.memset.elementSize,
                                             .width = params.memset.width,
                                             .height = params.memset.height};
        return if_there(driver.cuGraphMemsetNodeSetParams, node, &memset);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        const CUDA_HOST_NODE_PARAMS host{.fn = params.host.fn, .userData = params.host.userData};
        return if_there(driver.cuGraphHostNodeSetParams, node, &host);
    }
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return if_there(driver.cuGraphEventWaitNodeSetEvent, node, params.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return if_there(driver.cuGraphEventRecordNodeSetEvent, node, params.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
        const auto batch = std::bit_cast<CUDA_BATCH_MEM_OP_NODE_PARAMS>(params.memOp);
        return if_there(driver.cuGraphBatchMemOpNodeSetParams, node, &batch);
    }
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult set_in_exec(const driver_api::Backend &driver, CUgraphExec exec, CUgraphNode node,
                     const NodeParams &node_params) {
    const auto &params = node_params.params;
    switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        const auto kernel = std::bit_cast<CUDA_KERNEL_NODE_PARAMS_v2>(params.kernel);
        return if_there(driver.cuGraphExecKernelNodeSetParams_v2, exec, node, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return if_there(driver.cuGraphExecMemcpyNodeSetParams, exec, node, &params.memcpy.copyParams,
                        node_params.context);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        const CUDA_MEMSET_NODE_PARAMS memset{.dst = params.memset.dst,
                                             .pitch = params.memset.pitch,
                                             .value = params.memset.value,
                                             .elementSize = params.memset.elementSize,
                                             .width = params.memset.width,
                                             .height = params.memset.height};
        return if_there(driver.cuGraphExecMemsetNodeSetParams, exec, node, &memset, node_params.context);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        const CUDA_HOST_NODE_PARAMS host{.fn = params.host.fn, .userData = params.host.userData};
        return if_there(driver.cuGraphExecHostNodeSetParams, exec, node, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return if_there(driver.cuGraphExecChildGraphNodeSetParams, exec, node, params.graph.graph);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return if_there(driver.cuGraphExecEventWaitNodeSetEvent, exec, node, params.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return if_there(driver.cuGraphExecEventRecordNodeSetEvent, exec, node, params.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
        const auto batch = std::bit_cast<CUDA_BATCH_MEM_OP_NODE_PARAMS>(params.memOp);
        return if_there(driver.cuGraphExecBatchMemOpNodeSetParams, exec, node, &batch);
    }
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

template <class Body>
void put_body(Call &call, const Body &body, Reply<protocol::GetNode> &reply) {
    const auto copy = call.elements<Body>(1);
    copy[0] = body;
    reply.buffers[0] = protocol::view_of_elements(std::span<const Body>(copy));
}

// Parameters as one buffer, whichever way the driver keeps them.
std::expected<std::span<std::byte>, CUresult> pack_parameters(Call &call,
                                                              const CUDA_KERNEL_NODE_PARAMS_v2 &kernel) {
    if (kernel.extra != nullptr) {
        const std::byte *data = nullptr;
        std::size_t size = 0;
        for (void **entry = kernel.extra; *entry != CU_LAUNCH_PARAM_END; entry += 2) {
            if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER)
                data = static_cast<const std::byte *>(entry[1]);
            else if (*entry == CU_LAUNCH_PARAM_BUFFER_SIZE)
                size = *static_cast<const std::size_t *>(entry[1]);
            else
                return std::unexpected(CUDA_ERROR_NOT_SUPPORTED);
        }
        if (data == nullptr || size > protocol::kMostParameters)
            return std::unexpected(CUDA_ERROR_INVALID_VALUE);
        const auto copy = call.storage(size);
        std::ranges::copy(std::span(data, size), copy.begin());
        return copy;
    }
    const bool by_kernel = kernel.func == nullptr;
    const auto places = layout_of(call.driver(),
                                  by_kernel ? std::bit_cast<std::uint64_t>(kernel.kern)
                                            : std::bit_cast<std::uint64_t>(kernel.func),
                                  by_kernel);
    if (!places)
        return std::unexpected(places.error());
    std::size_t size = 0;
    for (const auto &place : *places)
        size = std::max<std::size_t>(size, std::size_t{place.offset} + place.size);
    if (size > protocol::kMostParameters || (size != 0 && kernel.kernelParams == nullptr))
        return std::unexpected(CUDA_ERROR_INVALID_VALUE);
    const auto packed = call.storage(size);
    for (std::size_t index = 0; index < places->size(); ++index)
        std::memcpy(packed.data() + (*places)[index].offset, kernel.kernelParams[index],
                    (*places)[index].size);
    return packed;
}

CUresult get_kernel(Call &call, CUgraphNode node, Reply<protocol::GetNode> &reply) {
    CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
    if (const auto result = if_there(call.driver().cuGraphKernelNodeGetParams_v2, node, &kernel);
        result != CUDA_SUCCESS)
        return result;
    auto &objects = call.objects();
    protocol::KernelBody body;
    body.shape.function =
        kernel.func != nullptr
            ? objects.name_of(driver_api::kHandleFunction, std::bit_cast<std::uint64_t>(kernel.func))
            : objects.name_of(driver_api::kHandleKernel, std::bit_cast<std::uint64_t>(kernel.kern));
    body.shape.grid = {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ};
    body.shape.block = {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ};
    body.shape.shared_bytes = kernel.sharedMemBytes;
    body.context = objects.name_of(driver_api::kHandleContext, std::bit_cast<std::uint64_t>(kernel.ctx));
    const auto parameters = pack_parameters(call, kernel);
    if (!parameters)
        return parameters.error();
    put_body(call, body, reply);
    reply.buffers[1] = {.bytes = *parameters, .present = true};
    return CUDA_SUCCESS;
}

} // namespace

CUresult handle(Call &call, const Request<protocol::AddNode> &request, Reply<protocol::AddNode> & /*reply*/) {
    const auto &fixed = request.fixed;
    const auto graph = call.object<CUgraph>(driver_api::kHandleGraph, fixed.graph);
    const auto after = nodes_of(call, request.buffers[0]);
    if (!graph || *graph == nullptr || !after)
        return CUDA_ERROR_INVALID_HANDLE;
    NodeParams params;
    auto result =
        params.read(call, static_cast<NodeType>(fixed.type), request.buffers[2], request.buffers[3]);
    CUgraphNode node = nullptr;
    if (result == CUDA_SUCCESS)
        result = add(call.driver(), &node, *graph, *after, request.buffers[1], params);
    if (result == CUDA_SUCCESS && params.cooperative)
        result = make_cooperative(call.driver(), node);
    if (result != CUDA_SUCCESS) {
        if (params.callback != nullptr)
            call.session().callbacks().drop(params.callback);
        return result;
    }
    // Nodes go with their graph.
    const ObjectTable::Origin of_graph(call.header().context, fixed.graph);
    call.add(driver_api::kHandleGraphNode, fixed.node, node);
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::SetNode> &request, Reply<protocol::SetNode> & /*reply*/) {
    const auto &fixed = request.fixed;
    const auto node = call.object<CUgraphNode>(driver_api::kHandleGraphNode, fixed.node);
    const auto exec = call.object<CUgraphExec>(driver_api::kHandleGraphExec, fixed.exec);
    if (!node || *node == nullptr || !exec)
        return CUDA_ERROR_INVALID_HANDLE;
    NodeParams params;
    auto result =
        params.read(call, static_cast<NodeType>(fixed.type), request.buffers[0], request.buffers[1]);
    if (result == CUDA_SUCCESS)
        result = fixed.exec != 0 ? set_in_exec(call.driver(), *exec, *node, params)
                                 : set(call.driver(), *node, params);
    if (result != CUDA_SUCCESS && params.callback != nullptr)
        call.session().callbacks().drop(params.callback);
    return result;
}

CUresult handle(Call &call, const Request<protocol::GetNode> &request, Reply<protocol::GetNode> &reply) {
    const auto &driver = call.driver();
    const auto node = call.object<CUgraphNode>(driver_api::kHandleGraphNode, request.fixed.node);
    if (!node || *node == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    auto type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (const auto result = if_there(driver.cuGraphNodeGetType, *node, &type); result != CUDA_SUCCESS)
        return result;
    reply.fixed.type = static_cast<std::uint32_t>(type);
    switch (static_cast<NodeType>(type)) {
    case NodeType::kernel:
        return get_kernel(call, *node, reply);
    case NodeType::memcpy: {
        CUDA_MEMCPY3D copy{};
        if (const auto result = if_there(driver.cuGraphMemcpyNodeGetParams, *node, &copy);
            result != CUDA_SUCCESS)
            return result;
        put_body(call,
                 protocol::MemcpyBody{
                     .destination = destination_place(call, copy),
                     .source = source_place(call, copy),
                     .box = {.width = copy.WidthInBytes, .height = copy.Height, .depth = copy.Depth},
                     .context = 0},
                 reply);
        return CUDA_SUCCESS;
    }
    case NodeType::host: {
        CUDA_HOST_NODE_PARAMS host{};
        if (const auto result = if_there(driver.cuGraphHostNodeGetParams, *node, &host);
            result != CUDA_SUCCESS)
            return result;
        // Captured ones as well: all host functions of this session were given to the driver here.
        if (host.fn != &Callbacks::host_function || host.userData == nullptr)
            return CUDA_ERROR_NOT_SUPPORTED;
        const auto &what = static_cast<const Callbacks::Request *>(host.userData)->what;
        put_body(call, protocol::HostBody{.function = what.function, .data = what.data}, reply);
        return CUDA_SUCCESS;
    }
    case NodeType::batch_mem_op: {
        CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
        if (const auto result = if_there(driver.cuGraphBatchMemOpNodeGetParams, *node, &batch);
            result != CUDA_SUCCESS)
            return result;
        put_body(call, protocol::BatchMemOpBody{.context = 0, .flags = batch.flags, .reserved = 0}, reply);
        const auto copy = call.elements<CUstreamBatchMemOpParams>(batch.count);
        std::ranges::copy(std::span(batch.paramArray, batch.count), copy.begin());
        reply.buffers[1] = protocol::view_of_elements(std::span<const CUstreamBatchMemOpParams>(copy));
        return CUDA_SUCCESS;
    }
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult handle(Call &call, const Request<protocol::GetNodeAttribute> &request,
                Reply<protocol::GetNodeAttribute> &reply) {
    const auto node = call.object<CUgraphNode>(driver_api::kHandleGraphNode, request.fixed.node);
    if (!node || *node == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    CUlaunchAttributeValue value{};
    const auto result = if_there(call.driver().cuGraphKernelNodeGetAttribute, *node,
                                 static_cast<CUlaunchAttributeID>(request.fixed.attribute), &value);
    std::memcpy(reply.fixed.value.data(), &value, sizeof(value));
    return result;
}

CUresult handle(Call &call, const Request<protocol::SetNodeAttribute> &request,
                Reply<protocol::SetNodeAttribute> & /*reply*/) {
    const auto node = call.object<CUgraphNode>(driver_api::kHandleGraphNode, request.fixed.node);
    if (!node || *node == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    CUlaunchAttribute attribute{};
    if (const auto result = read_attribute(
            call, {.id = request.fixed.attribute, .reserved = 0, .value = request.fixed.value}, attribute);
        result != CUDA_SUCCESS)
        return result;
    return if_there(call.driver().cuGraphKernelNodeSetAttribute, *node, attribute.id, &attribute.value);
}

} // namespace singularity::proxyd::handlers
