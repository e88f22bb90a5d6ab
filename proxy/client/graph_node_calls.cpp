// SPDX-License-Identifier: GPL-2.0-or-later
// cuGraph*Node*: adding, changing and asking nodes.
#include "graph.hpp"
#include "graph_collectives.hpp"
#include "graph_memory.hpp"
#include "log.hpp"

#include <algorithm>
#include <cstring>

using namespace singularity;
using namespace singularity::client;

namespace {

template <class Node>
CUDA_KERNEL_NODE_PARAMS_v3 kernel_of(const Node &node) {
    CUDA_KERNEL_NODE_PARAMS_v3 out{};
    out.func = node.func;
    out.gridDimX = node.gridDimX;
    out.gridDimY = node.gridDimY;
    out.gridDimZ = node.gridDimZ;
    out.blockDimX = node.blockDimX;
    out.blockDimY = node.blockDimY;
    out.blockDimZ = node.blockDimZ;
    out.sharedMemBytes = node.sharedMemBytes;
    out.kernelParams = node.kernelParams;
    out.extra = node.extra;
    if constexpr (requires { node.kern; }) {
        out.kern = node.kern;
        out.ctx = node.ctx;
    }
    return out;
}

CUDA_MEMSET_NODE_PARAMS_v2 memset_of(const CUDA_MEMSET_NODE_PARAMS &node, CUcontext context) {
    CUDA_MEMSET_NODE_PARAMS_v2 out{};
    out.dst = node.dst;
    out.pitch = node.pitch;
    out.value = node.value;
    out.elementSize = node.elementSize;
    out.width = node.width;
    out.height = node.height;
    out.ctx = context;
    return out;
}

CUDA_HOST_NODE_PARAMS_v2 host_of(const CUDA_HOST_NODE_PARAMS &node) {
    CUDA_HOST_NODE_PARAMS_v2 out{};
    out.fn = node.fn;
    out.userData = node.userData;
    return out;
}

CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 batch_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS &node) {
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 out{};
    out.ctx = node.ctx;
    out.count = node.count;
    out.paramArray = node.paramArray;
    out.flags = node.flags;
    return out;
}

// Where each parameter of a kernel lies in the node's own copy of them.
CUresult point_to_parameters(NodeObject &node, std::uint64_t function, const Route &route) {
    Launchable what;
    if (const auto bad = launchable(std::bit_cast<CUfunction>(function), route, what); bad != CUDA_SUCCESS)
        return bad;
    node.pointers.clear();
    for (const auto &parameter : what.layout->parameters) {
        if (std::size_t{parameter.offset} + parameter.size > node.parameters.size())
            return CUDA_ERROR_UNKNOWN;
        node.pointers.push_back(node.parameters.data() + parameter.offset);
    }
    return CUDA_SUCCESS;
}

template <class Body>
Body body_of(const NodeContent &content) {
    Body body;
    std::memcpy(&body, content.body.data(), sizeof(body));
    return body;
}

template <class Node>
CUresult get_kernel(CUgraphNode handle, Node *out) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    NodeContent content;
    if (const auto bad = get_node(handle, protocol::NodeType::kernel, content); bad != CUDA_SUCCESS)
        return bad;
    Route route;
    if (const auto bad = node_route(handle, route); bad != CUDA_SUCCESS)
        return bad;
    const auto body = body_of<protocol::KernelBody>(content);
    auto &node = *node_object(handle);
    node.parameters = std::move(content.parameters);
    if (const auto bad = point_to_parameters(node, body.shape.function, route); bad != CUDA_SUCCESS)
        return bad;
    *out = {};
    const bool is_kernel = kind_of(body.shape.function) == driver_api::kHandleKernel;
    if constexpr (requires { out->kern; }) {
        out->func = is_kernel ? nullptr : std::bit_cast<CUfunction>(body.shape.function);
        out->kern = is_kernel ? std::bit_cast<CUkernel>(body.shape.function) : nullptr;
        out->ctx = std::bit_cast<CUcontext>(body.context);
    } else {
        out->func = std::bit_cast<CUfunction>(body.shape.function);
    }
    out->gridDimX = body.shape.grid[0];
    out->gridDimY = body.shape.grid[1];
    out->gridDimZ = body.shape.grid[2];
    out->blockDimX = body.shape.block[0];
    out->blockDimY = body.shape.block[1];
    out->blockDimZ = body.shape.block[2];
    out->sharedMemBytes = body.shape.shared_bytes;
    out->kernelParams = node.pointers.data();
    return CUDA_SUCCESS;
}

template <class Node>
CUresult add_kernel(CUgraphNode *out, CUgraph graph, const Dependencies &dependencies, const Node *node) {
    Route route;
    if (const auto bad = graph_route(graph, route); bad != CUDA_SUCCESS)
        return bad;
    if (node == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    NodeContent content;
    if (const auto bad = content_of(kernel_of(*node), route, content); bad != CUDA_SUCCESS)
        return bad;
    return add_node(out, graph, route, dependencies, content);
}

template <class Node>
CUresult set_kernel(std::uint64_t exec, CUgraphNode handle, const Node *node) {
    Route route;
    if (const auto bad = node_route(handle, route); bad != CUDA_SUCCESS)
        return bad;
    if (node == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    NodeContent content;
    if (const auto bad = content_of(kernel_of(*node), route, content); bad != CUDA_SUCCESS)
        return bad;
    return set_node(exec, handle, content);
}

// Any content that needs nothing but itself.
template <class Node>
CUresult add_simple(CUgraphNode *out, CUgraph graph, const Dependencies &dependencies, const Node &node) {
    Route route;
    if (const auto bad = graph_route(graph, route); bad != CUDA_SUCCESS)
        return bad;
    NodeContent content;
    if (const auto bad = content_of(node, content); bad != CUDA_SUCCESS)
        return bad;
    return add_node(out, graph, route, dependencies, content);
}

template <class Node>
CUresult set_simple(std::uint64_t exec, CUgraphNode handle, const Node &node) {
    Route route;
    if (const auto bad = node_route(handle, route); bad != CUDA_SUCCESS)
        return bad;
    NodeContent content;
    if (const auto bad = content_of(node, content); bad != CUDA_SUCCESS)
        return bad;
    return set_node(exec, handle, content);
}

CUresult add_empty(CUgraphNode *out, CUgraph graph, const Route &route, const Dependencies &dependencies,
                   CUgraphNodeType shown) {
    NodeContent content;
    content.set(protocol::NodeType::empty, protocol::EmptyBody{});
    const auto result = add_node(out, graph, route, dependencies, content);
    if (result == CUDA_SUCCESS)
        node_object(*out)->shown_type = shown;
    return result;
}

// Memory of a graph is allocated when its node is made and stays until the context ends: at every run of the
// graph it is at the same address, as CUDA promises.
template <class Node>
CUresult add_allocation(CUgraphNode *out, CUgraph graph, const Dependencies &dependencies, Node &node) {
    Route route;
    if (const auto bad = graph_route(graph, route); bad != CUDA_SUCCESS)
        return bad;
    if (route.context == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (node.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        node.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (node.poolProps.location.id != route.session->ordinal())
        return CUDA_ERROR_NOT_SUPPORTED; // memory of another device in a graph of this one
    std::uint64_t address = 0;
    if (const auto bad = allocate_device(*route.context, node.bytesize, 0, address); bad != CUDA_SUCCESS)
        return bad;
    const auto result = add_empty(out, graph, route, dependencies, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    if (result != CUDA_SUCCESS) {
        static_cast<void>(release_device(address));
        return result;
    }
    graph_allocates(std::bit_cast<std::uint64_t>(graph), *route.context, address);
    node.dptr = address;
    auto &kept = node_object(*out)->allocation;
    kept = {};
    kept.poolProps = node.poolProps;
    kept.bytesize = node.bytesize;
    kept.dptr = node.dptr;
    return CUDA_SUCCESS;
}

CUresult add_free(CUgraphNode *out, CUgraph graph, const Dependencies &dependencies, CUdeviceptr address) {
    Route route;
    if (const auto bad = graph_route(graph, route); bad != CUDA_SUCCESS)
        return bad;
    const auto allocation = find_device(address);
    if (!allocation || allocation->range.address != address || !graph_memory_at(address))
        return CUDA_ERROR_INVALID_VALUE;
    const auto result = add_empty(out, graph, route, dependencies, CU_GRAPH_NODE_TYPE_MEM_FREE);
    if (result != CUDA_SUCCESS)
        return result;
    node_object(*out)->freed = address;
    graph_frees(std::bit_cast<std::uint64_t>(graph), address);
    return result;
}

template <class Body>
CUresult add_body(CUgraphNode *out, CUgraph graph, const Dependencies &dependencies, protocol::NodeType type,
                  const Body &body) {
    Route route;
    if (const auto bad = graph_route(graph, route); bad != CUDA_SUCCESS)
        return bad;
    NodeContent content;
    content.set(type, body);
    return add_node(out, graph, route, dependencies, content);
}

CUresult add_any(CUgraphNode *out, CUgraph graph, const Dependencies &dependencies, CUgraphNodeParams *node) {
    if (node == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return add_kernel(out, graph, dependencies, &node->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
        Route route;
        if (const auto bad = graph_route(graph, route); bad != CUDA_SUCCESS)
            return bad;
        return add_copy_node(out, graph, route, dependencies, node->memcpy.copyParams, node->memcpy.copyCtx);
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return add_simple(out, graph, dependencies, node->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
        return add_simple(out, graph, dependencies, node->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (const auto bad = allowed_within(std::bit_cast<std::uint64_t>(node->graph.graph));
            bad != CUDA_SUCCESS)
            return bad;
        return add_body(
            out, graph, dependencies, protocol::NodeType::graph,
            protocol::ChildGraphBody{.graph = std::bit_cast<std::uint64_t>(node->graph.graph),
                                     .ownership = static_cast<std::uint64_t>(node->graph.ownership)});
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return add_body(out, graph, dependencies, protocol::NodeType::empty, protocol::EmptyBody{});
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return add_body(out, graph, dependencies, protocol::NodeType::wait_event,
                        protocol::EventBody{.event = std::bit_cast<std::uint64_t>(node->eventWait.event)});
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return add_body(out, graph, dependencies, protocol::NodeType::event_record,
                        protocol::EventBody{.event = std::bit_cast<std::uint64_t>(node->eventRecord.event)});
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return add_allocation(out, graph, dependencies, node->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return add_free(out, graph, dependencies, node->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return add_simple(out, graph, dependencies, node->memOp);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult set_any(std::uint64_t exec, CUgraphNode handle, CUgraphNodeParams *node) {
    if (node == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return set_kernel(exec, handle, &node->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return set_copy_node(exec, handle, node->memcpy.copyParams, node->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return set_simple(exec, handle, node->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
        return set_simple(exec, handle, node->host);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return set_simple(exec, handle, node->memOp);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

std::uint64_t exec_number(CUgraphExec exec) {
    // It has no nodes of its own; set_node() does not know it.
    if (parted_graph(exec) != nullptr)
        kLog.warning(
            "a node of an executable graph with collectives cannot be changed: change the graph, and update "
            "the executable one with it (cuGraphExecUpdate), or instantiate another");
    return std::bit_cast<std::uint64_t>(exec);
}

CUDA_MEMCPY3D copy_of(const protocol::MemcpyBody &body) {
    CUDA_MEMCPY3D out{};
    const auto is_array = [](const protocol::Place &place) {
        return place.kind == static_cast<std::uint32_t>(protocol::PlaceKind::array);
    };
    out.srcXInBytes = body.source.x;
    out.srcY = body.source.y;
    out.srcZ = body.source.z;
    out.srcLOD = body.source.level;
    out.srcPitch = body.source.pitch;
    out.srcHeight = body.source.height;
    out.srcMemoryType = is_array(body.source) ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED;
    if (is_array(body.source))
        out.srcArray = std::bit_cast<CUarray>(body.source.base);
    else
        out.srcDevice = body.source.base;
    out.dstXInBytes = body.destination.x;
    out.dstY = body.destination.y;
    out.dstZ = body.destination.z;
    out.dstLOD = body.destination.level;
    out.dstPitch = body.destination.pitch;
    out.dstHeight = body.destination.height;
    out.dstMemoryType = is_array(body.destination) ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED;
    if (is_array(body.destination))
        out.dstArray = std::bit_cast<CUarray>(body.destination.base);
    else
        out.dstDevice = body.destination.base;
    out.WidthInBytes = body.box.width;
    out.Height = body.box.height;
    out.Depth = body.box.depth;
    return out;
}

} // namespace

extern "C" {

// --- Kernels

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return add_kernel(phGraphNode, hGraph, {.nodes = dependencies, .count = numDependencies}, nodeParams);
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return add_kernel(phGraphNode, hGraph, {.nodes = dependencies, .count = numDependencies}, nodeParams);
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return get_kernel(hNode, nodeParams);
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return get_kernel(hNode, nodeParams);
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return set_kernel(0, hNode, nodeParams);
}
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return set_kernel(0, hNode, nodeParams);
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return set_kernel(exec_number(hGraphExec), hNode, nodeParams);
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return set_kernel(exec_number(hGraphExec), hNode, nodeParams);
}
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue *value_out) {
    Route route;
    if (const auto bad = node_route(hNode, route); bad != CUDA_SUCCESS)
        return bad;
    if (value_out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    return ask(
        route,
        protocol::Message<protocol::GetNodeAttribute>{
            .fixed = {.node = std::bit_cast<std::uint64_t>(hNode),
                      .attribute = static_cast<std::uint32_t>(attr)}},
        0, [&](const auto &reply) { std::memcpy(value_out, reply.fixed.value.data(), sizeof(*value_out)); });
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue *value) {
    Route route;
    if (const auto bad = node_route(hNode, route); bad != CUDA_SUCCESS)
        return bad;
    if (value == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    protocol::Message<protocol::SetNodeAttribute> message{
        .fixed = {.node = std::bit_cast<std::uint64_t>(hNode),
                  .attribute = static_cast<std::uint32_t>(attr)}};
    static_assert(sizeof(*value) == sizeof(message.fixed.value));
    std::memcpy(message.fixed.value.data(), value, sizeof(*value));
    return ask(route, message);
}

// --- Copies

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    Route route;
    if (const auto bad = graph_route(hGraph, route); bad != CUDA_SUCCESS)
        return bad;
    if (copyParams == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    return add_copy_node(phGraphNode, hGraph, route, {.nodes = dependencies, .count = numDependencies},
                         *copyParams, ctx);
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (nodeParams == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    NodeContent content;
    if (const auto bad = get_node(hNode, protocol::NodeType::memcpy, content); bad != CUDA_SUCCESS)
        return bad;
    *nodeParams = copy_of(body_of<protocol::MemcpyBody>(content));
    return CUDA_SUCCESS;
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams) {
    return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : set_copy_node(0, hNode, *nodeParams, nullptr);
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    return copyParams == nullptr ? CUDA_ERROR_INVALID_VALUE
                                 : set_copy_node(exec_number(hGraphExec), hNode, *copyParams, ctx);
}

// --- Memory set, host functions, batches

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                              CUcontext ctx) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (memsetParams == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    return add_simple(phGraphNode, hGraph, {.nodes = dependencies, .count = numDependencies},
                      memset_of(*memsetParams, ctx));
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams) {
    return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE
                                 : set_simple(0, hNode, memset_of(*nodeParams, nullptr));
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx) {
    return memsetParams == nullptr
               ? CUDA_ERROR_INVALID_VALUE
               : set_simple(exec_number(hGraphExec), hNode, memset_of(*memsetParams, ctx));
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams) {
    if (nodeParams == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    return add_simple(phGraphNode, hGraph, {.nodes = dependencies, .count = numDependencies},
                      host_of(*nodeParams));
}
CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams) {
    if (nodeParams == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    NodeContent content;
    if (const auto bad = get_node(hNode, protocol::NodeType::host, content); bad != CUDA_SUCCESS)
        return bad;
    const auto body = body_of<protocol::HostBody>(content);
    *nodeParams = {};
    nodeParams->fn = std::bit_cast<CUhostFn>(body.function);
    nodeParams->userData = std::bit_cast<void *>(body.data);
    return CUDA_SUCCESS;
}
CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams) {
    return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : set_simple(0, hNode, host_of(*nodeParams));
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS *nodeParams) {
    return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE
                                 : set_simple(exec_number(hGraphExec), hNode, host_of(*nodeParams));
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams) {
    if (nodeParams == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    return add_simple(phGraphNode, hGraph, {.nodes = dependencies, .count = numDependencies},
                      batch_of(*nodeParams));
}

// --- Memory of graphs

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (nodeParams == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    return add_allocation(phGraphNode, hGraph, {.nodes = dependencies, .count = numDependencies},
                          *nodeParams);
}
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out) {
    Route route;
    if (const auto bad = node_route(hNode, route); bad != CUDA_SUCCESS)
        return bad;
    const auto &node = *node_object(hNode);
    if (params_out == nullptr || node.shown_type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    *params_out = node.allocation;
    return CUDA_SUCCESS;
}
CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                               size_t numDependencies, CUdeviceptr dptr) {
    return add_free(phGraphNode, hGraph, {.nodes = dependencies, .count = numDependencies}, dptr);
}
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out) {
    Route route;
    if (const auto bad = node_route(hNode, route); bad != CUDA_SUCCESS)
        return bad;
    const auto &node = *node_object(hNode);
    if (dptr_out == nullptr || node.shown_type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *dptr_out = node.freed;
    return CUDA_SUCCESS;
}

// --- Any

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams) {
    return add_any(phGraphNode, hGraph, {.nodes = dependencies, .count = numDependencies}, nodeParams);
}
CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependencyData, size_t numDependencies,
                           CUgraphNodeParams *nodeParams) {
    return add_any(phGraphNode, hGraph,
                   {.nodes = dependencies, .edges = dependencyData, .count = numDependencies}, nodeParams);
}
CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
    return set_any(0, hNode, nodeParams);
}
CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
    return set_any(exec_number(hGraphExec), hNode, nodeParams);
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type) {
    Route route;
    if (const auto bad = node_route(hNode, route); bad != CUDA_SUCCESS)
        return bad;
    if (const auto *node = node_object(hNode); type != nullptr && node->shown_type >= 0) {
        *type = static_cast<CUgraphNodeType>(node->shown_type);
        return CUDA_SUCCESS;
    }
    auto request = driver_api::GraphNodeGetTypeCall::request(ApiId::kGraphNodeGetType, hNode, type);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleGraphNode, request->hNode); bad != CUDA_SUCCESS)
        return bad;
    return send_sync(
        *request,
        [&](std::span<const std::byte> bytes) {
            return driver_api::decode_GraphNodeGetTypeReply(*request, bytes);
        },
        [&](const auto &reply) { driver_api::GraphNodeGetTypeCall::finish(*request, reply, type); });
}

} // extern "C"
