// SPDX-License-Identifier: GPL-2.0-or-later
#include "graph.hpp"

#include "log.hpp"

#include <algorithm>
#include <cstring>

namespace singularity::client {

namespace {

std::uint64_t number(const void *handle) { return std::bit_cast<std::uint64_t>(handle); }

CUresult object_route(const Object *object, Route &route) {
    if (object == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    route = {.session = object->session, .context = object->context};
    if (current_context != nullptr && current_context->session == object->session && current_context->alive)
        route.context = current_context;
    return CUDA_SUCCESS;
}

void set_host(NodeContent &content, CUhostFn function, void *data) {
    content.set(protocol::NodeType::host,
                protocol::HostBody{.function = std::bit_cast<std::uint64_t>(function),
                                   .data = std::bit_cast<std::uint64_t>(data)});
}

driver_api::View view_of(const std::vector<std::byte> &bytes, bool present = true) {
    return {.bytes = bytes, .present = present};
}

} // namespace

CUresult graph_route(CUgraph graph, Route &route) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    return object_route(find_object(driver_api::kHandleGraph, number(graph)), route);
}

NodeObject *node_object(CUgraphNode node) {
    return find_as<NodeObject>(driver_api::kHandleGraphNode, number(node));
}

CUresult node_route(CUgraphNode node, Route &route) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    return object_route(node_object(node), route);
}

CUresult content_of(const CUDA_KERNEL_NODE_PARAMS_v3 &node, const Route &route, NodeContent &content) {
    auto *const function = node.func != nullptr ? node.func : std::bit_cast<CUfunction>(node.kern);
    if (function == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    Launchable what;
    if (const auto bad = launchable(function, route, what); bad != CUDA_SUCCESS)
        return bad;
    ParameterSource source;
    if (const auto bad = parameter_source(node.kernelParams, node.extra, source); bad != CUDA_SUCCESS)
        return bad;
    std::size_t bytes = 0;
    if (const auto bad = parameter_bytes(*what.layout, source, bytes); bad != CUDA_SUCCESS)
        return bad;
    const protocol::LaunchShape shape{.function = what.code->handle,
                                      .grid = {node.gridDimX, node.gridDimY, node.gridDimZ},
                                      .block = {node.blockDimX, node.blockDimY, node.blockDimZ},
                                      .shared_bytes = node.sharedMemBytes};
    if (const auto bad = check_shape(route, what, shape); bad != CUDA_SUCCESS)
        return bad;
    content.set(protocol::NodeType::kernel,
                protocol::KernelBody{.shape = shape, .context = node.func == nullptr ? number(node.ctx) : 0});
    content.parameters.resize(bytes);
    content.has_parameters = true;
    copy_parameters(*what.layout, source, content.parameters);
    return CUDA_SUCCESS;
}

CUresult content_of(const CUDA_MEMCPY3D &node, CUcontext context, const Route &route, NodeContent &content,
                    std::unique_ptr<StagedBox> &staged) {
    const auto copy = box_of(node);
    ResolvedEnd destination;
    ResolvedEnd source;
    if (const auto bad = resolve(copy.destination, copy.box, destination); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = resolve(copy.source, copy.box, source); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = stage(route, copy.box, destination, source, staged); bad != CUDA_SUCCESS)
        return bad;
    if (staged != nullptr && staged->alone)
        return CUDA_SUCCESS;
    content.set(protocol::NodeType::memcpy, protocol::MemcpyBody{.destination = destination.place,
                                                                 .source = source.place,
                                                                 .box = copy.box,
                                                                 .context = number(context)});
    return CUDA_SUCCESS;
}

CUresult content_of(const CUDA_MEMSET_NODE_PARAMS_v2 &node, NodeContent &content) {
    const auto location = locate(node.dst);
    if (location.where == Where::pageable)
        return CUDA_ERROR_INVALID_VALUE;
    content.set(protocol::NodeType::memset, protocol::MemsetBody{.destination = location.wire,
                                                                 .pitch = node.pitch,
                                                                 .width = node.width,
                                                                 .height = node.height,
                                                                 .value = node.value,
                                                                 .element_size = node.elementSize,
                                                                 .context = number(node.ctx)});
    return CUDA_SUCCESS;
}

CUresult content_of(const CUDA_HOST_NODE_PARAMS_v2 &node, NodeContent &content) {
    if (node.fn == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    set_host(content, node.fn, node.userData);
    return CUDA_SUCCESS;
}

CUresult content_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 &node, NodeContent &content) {
    if (node.count != 0 && node.paramArray == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    content.set(protocol::NodeType::batch_mem_op,
                protocol::BatchMemOpBody{.context = number(node.ctx), .flags = node.flags});
    const auto operations = std::as_bytes(std::span(node.paramArray, node.count));
    content.parameters.assign(operations.begin(), operations.end());
    content.has_parameters = true;
    return CUDA_SUCCESS;
}

CUresult add_node(CUgraphNode *out, CUgraph graph, const Route &route, const Dependencies &dependencies,
                  const NodeContent &content) {
    if (out == nullptr || (dependencies.count != 0 && dependencies.nodes == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    auto &table = process().table(driver_api::kHandleGraphNode);
    const auto handle = table.reserve();
    protocol::Message<protocol::AddNode> message{
        .fixed = {.graph = number(graph), .node = handle, .type = static_cast<std::uint32_t>(content.type)}};
    if (dependencies.count != 0)
        message.buffers[0] = protocol::view_of_elements(std::span(dependencies.nodes, dependencies.count));
    if (dependencies.count != 0 && dependencies.edges != nullptr)
        message.buffers[1] = protocol::view_of_elements(std::span(dependencies.edges, dependencies.count));
    message.buffers[2] = view_of(content.body);
    message.buffers[3] = view_of(content.parameters, content.has_parameters);
    if (const auto result = ask(route, message); result != CUDA_SUCCESS)
        return result;
    auto object = std::make_unique<NodeObject>();
    object->session = route.session;
    object->context = route.context;
    object->owner = number(graph);
    table.add(handle, std::move(object));
    *out = std::bit_cast<CUgraphNode>(handle);
    return CUDA_SUCCESS;
}

CUresult add_copy_node(CUgraphNode *out, CUgraph graph, const Route &route, const Dependencies &dependencies,
                       const CUDA_MEMCPY3D &copy, CUcontext context) {
    NodeContent content;
    std::unique_ptr<StagedBox> staged;
    if (const auto bad = content_of(copy, context, route, content, staged); bad != CUDA_SUCCESS)
        return bad;
    if (staged == nullptr)
        return add_node(out, graph, route, dependencies, content);
    const bool to_program = staged->to_program;
    const bool alone = staged->alone;
    NodeContent host;
    set_host(host, run_staged, staged.release()); // see StagedBox
    if (alone) {
        if (const auto bad = add_node(out, graph, route, dependencies, host); bad != CUDA_SUCCESS)
            return bad;
        node_object(*out)->shown_type = CU_GRAPH_NODE_TYPE_MEMCPY;
        node_object(*out)->alone = true;
        return CUDA_SUCCESS;
    }
    CUgraphNode first = nullptr;
    if (const auto bad = add_node(&first, graph, route, dependencies, to_program ? content : host);
        bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad =
            add_node(out, graph, route, {.nodes = &first, .count = 1}, to_program ? host : content);
        bad != CUDA_SUCCESS)
        return bad;
    auto *const node = node_object(*out);
    node->shown_type = CU_GRAPH_NODE_TYPE_MEMCPY;
    node->partner = number(first);
    node_object(first)->shown_as = number(*out);
    node->to_program = to_program;
    return CUDA_SUCCESS;
}

CUresult set_node(std::uint64_t exec, CUgraphNode node, const NodeContent &content) {
    Route route;
    if (const auto bad = node_route(node, route); bad != CUDA_SUCCESS)
        return bad;
    if (exec != 0 && find_object(driver_api::kHandleGraphExec, exec) == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    return ask(
        route,
        protocol::Message<protocol::SetNode>{
            .fixed = {.exec = exec, .node = number(node), .type = static_cast<std::uint32_t>(content.type)},
            .buffers = {view_of(content.body), view_of(content.parameters, content.has_parameters)}});
}

CUresult set_copy_node(std::uint64_t exec, CUgraphNode node, const CUDA_MEMCPY3D &copy, CUcontext context) {
    Route route;
    if (const auto bad = node_route(node, route); bad != CUDA_SUCCESS)
        return bad;
    const auto *const object = node_object(node);
    NodeContent content;
    std::unique_ptr<StagedBox> staged;
    if (const auto bad = content_of(copy, context, route, content, staged); bad != CUDA_SUCCESS)
        return bad;
    const bool was_staged = object->partner != 0 || object->alone;
    if (was_staged != (staged != nullptr) || (staged != nullptr && staged->alone != object->alone) ||
        (staged != nullptr && staged->to_program != object->to_program)) {
        kLog.warning("a copy node cannot change between pinned memory and memory that is not, between one "
                     "device and two, nor its direction");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (staged == nullptr)
        return set_node(exec, node, content);
    NodeContent host;
    const bool to_program = staged->to_program;
    set_host(host, run_staged, staged.release()); // see StagedBox
    if (object->alone)
        return set_node(exec, node, host);
    auto *const partner = std::bit_cast<CUgraphNode>(object->partner);
    if (const auto bad = set_node(exec, partner, to_program ? content : host); bad != CUDA_SUCCESS)
        return bad;
    return set_node(exec, node, to_program ? host : content);
}

CUresult get_node(CUgraphNode node, protocol::NodeType wanted, NodeContent &content) {
    Route route;
    if (const auto bad = node_route(node, route); bad != CUDA_SUCCESS)
        return bad;
    bool fits = false;
    const auto result =
        ask(route, protocol::Message<protocol::GetNode>{.fixed = {.node = number(node)}},
            sizeof(protocol::MemcpyBody) + protocol::kMostParameters, [&](const auto &reply) {
                fits = reply.fixed.type == static_cast<std::uint32_t>(wanted) &&
                       reply.buffers[0].bytes.size() == protocol::body_size(reply.fixed.type);
                content.type = wanted;
                content.body.assign(reply.buffers[0].bytes.begin(), reply.buffers[0].bytes.end());
                content.parameters.assign(reply.buffers[1].bytes.begin(), reply.buffers[1].bytes.end());
            });
    if (result != CUDA_SUCCESS)
        return result;
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

} // namespace singularity::client
