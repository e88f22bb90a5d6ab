// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/node_plan.hpp"

#include "driver/copy.hpp"
#include "driver/event.hpp"
#include "driver/launch.hpp"
#include "driver/log.hpp"
#include "driver/module.hpp"

#include <bit>
#include <utility>

namespace singularity::softgpu::driver {

namespace {
constexpr unsigned kMostConditionalBodies = 4096;
}

Result<NodePlan> plan(const CUDA_KERNEL_NODE_PARAMS_v2 *parameters) {
    if (parameters == nullptr)
        return refused(CUDA_ERROR_INVALID_VALUE);
    CUfunction handle =
        parameters->func != nullptr ? parameters->func : std::bit_cast<CUfunction>(parameters->kern);
    auto context = context_of(parameters->ctx);
    // A CUfunction belongs to a context of its own.
    if (const auto function = functions().find(handle))
        context = function->context().shared_from_this();
    if (!context)
        return refused(context.error());
    CUlaunchConfig config =
        launch_config({parameters->gridDimX, parameters->gridDimY, parameters->gridDimZ},
                      {parameters->blockDimX, parameters->blockDimY, parameters->blockDimZ},
                      parameters->sharedMemBytes, nullptr);
    auto kernel = make_kernel(**context, handle, config, parameters->kernelParams, parameters->extra);
    if (!kernel)
        return refused(kernel.error());
    return NodePlan{CU_GRAPH_NODE_TYPE_KERNEL, *std::move(kernel), *context, nullptr};
}

Result<NodePlan> plan(const CUDA_KERNEL_NODE_PARAMS_v1 *parameters) {
    if (parameters == nullptr)
        return refused(CUDA_ERROR_INVALID_VALUE);
    CUDA_KERNEL_NODE_PARAMS_v2 all{};
    all.func = parameters->func;
    all.gridDimX = parameters->gridDimX;
    all.gridDimY = parameters->gridDimY;
    all.gridDimZ = parameters->gridDimZ;
    all.blockDimX = parameters->blockDimX;
    all.blockDimY = parameters->blockDimY;
    all.blockDimZ = parameters->blockDimZ;
    all.sharedMemBytes = parameters->sharedMemBytes;
    all.kernelParams = parameters->kernelParams;
    all.extra = parameters->extra;
    return plan(&all);
}

Result<NodePlan> plan(const CUDA_MEMCPY3D *parameters, CUcontext handle) {
    const auto context = context_of(handle);
    if (parameters == nullptr || !context)
        return refused(parameters == nullptr ? CUDA_ERROR_INVALID_VALUE : context.error());
    CopyOperation copy;
    copy.description = *parameters;
    copy.copy_context = handle;
    // Memory of the graph itself is not there yet.
    CopyOperation check = copy;
    const bool of_graph = is_graph_memory(parameters->srcDevice) || is_graph_memory(parameters->dstDevice);
    if (const auto ends = resolve(check); !ends && !of_graph)
        return refused(ends.error());
    return NodePlan{CU_GRAPH_NODE_TYPE_MEMCPY, std::move(copy), *context, nullptr};
}

Result<NodePlan> plan(const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext handle) {
    const auto context = context_of(handle);
    if (parameters == nullptr || !context)
        return refused(parameters == nullptr ? CUDA_ERROR_INVALID_VALUE : context.error());
    FillOperation fill;
    fill.description = *parameters;
    fill.context = handle;
    FillOperation check = fill;
    if (const CUresult checked = resolve(check); checked != CUDA_SUCCESS && !is_graph_memory(parameters->dst))
        return refused(checked);
    return NodePlan{CU_GRAPH_NODE_TYPE_MEMSET, std::move(fill), *context, nullptr};
}

Result<NodePlan> plan(const CUDA_HOST_NODE_PARAMS *parameters) {
    if (parameters == nullptr || parameters->fn == nullptr)
        return refused(CUDA_ERROR_INVALID_VALUE);
    return NodePlan{CU_GRAPH_NODE_TYPE_HOST, HostOperation{parameters->fn, parameters->userData}, nullptr,
                    nullptr};
}

Result<NodePlan> plan(const CUDA_BATCH_MEM_OP_NODE_PARAMS *parameters) {
    if (parameters == nullptr)
        return refused(CUDA_ERROR_INVALID_VALUE);
    const auto context = context_of(parameters->ctx);
    if (!context)
        return refused(context.error());
    auto operations =
        memory_operations(**context, parameters->paramArray, parameters->count, parameters->flags);
    if (!operations)
        return refused(operations.error());
    return NodePlan{CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, *std::move(operations), *context, nullptr};
}

Result<NodePlan> plan_event(CUevent handle, bool record) {
    const auto event = events().get(handle, CUDA_ERROR_INVALID_VALUE);
    if (!event)
        return refused(event.error());
    const auto context = (*event)->context().shared_from_this();
    if (record)
        return NodePlan{CU_GRAPH_NODE_TYPE_EVENT_RECORD, EventRecord{*event, handle, true}, context, nullptr};
    return NodePlan{CU_GRAPH_NODE_TYPE_WAIT_EVENT, EventWait{*event, handle}, context, nullptr};
}

Result<NodePlan> plan_allocation(CUDA_MEM_ALLOC_NODE_PARAMS *parameters) {
    const auto context = current_context();
    if (parameters == nullptr || !context)
        return refused(parameters == nullptr ? CUDA_ERROR_INVALID_VALUE : context.error());
    auto operation = make_graph_allocation(*parameters);
    if (!operation)
        return refused(operation.error());
    return NodePlan{CU_GRAPH_NODE_TYPE_MEM_ALLOC, *std::move(operation), *context, nullptr};
}

Result<NodePlan> plan_free(CUdeviceptr address) {
    const auto context = current_context();
    if (!context)
        return refused(context.error());
    if (!is_graph_memory(address))
        return refused(CUDA_ERROR_INVALID_VALUE);
    return NodePlan{CU_GRAPH_NODE_TYPE_MEM_FREE, FreeOperation{address, 0, nullptr}, *context, nullptr};
}

Result<NodePlan> plan_child(CUgraph handle) {
    const auto graph = graphs().get(handle, CUDA_ERROR_INVALID_VALUE);
    if (!graph)
        return refused(graph.error());
    return NodePlan{CU_GRAPH_NODE_TYPE_GRAPH, EmptyOperation{}, nullptr, *graph};
}

Result<NodePlan> plan_conditional(CUDA_CONDITIONAL_NODE_PARAMS &parameters) {
    const auto context = context_of(parameters.ctx);
    if (!context)
        return refused(context.error());
    auto conditional = conditional_of(**context, parameters.handle);
    const unsigned size = parameters.size;
    const bool fits = parameters.type == CU_GRAPH_COND_TYPE_IF      ? size == 1 || size == 2
                      : parameters.type == CU_GRAPH_COND_TYPE_WHILE ? size == 1
                      : parameters.type == CU_GRAPH_COND_TYPE_SWITCH
                          ? size != 0 && size <= kMostConditionalBodies
                          : false;
    if (conditional == nullptr || !fits)
        return refused(CUDA_ERROR_INVALID_VALUE);
    return NodePlan{.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
                    .operation = ConditionalOperation{parameters.handle, parameters.type, {}},
                    .context = *context,
                    .child = nullptr,
                    .conditional = std::move(conditional),
                    .bodies = size,
                    .bodies_out = &parameters.phGraph_out};
}

Result<NodePlan> plan(CUgraphNodeParams *parameters) {
    if (parameters == nullptr)
        return refused(CUDA_ERROR_INVALID_VALUE);
    switch (parameters->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
        static_assert(sizeof kernel == sizeof parameters->kernel);
        kernel = std::bit_cast<CUDA_KERNEL_NODE_PARAMS_v2>(parameters->kernel);
        return plan(&kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return plan(&parameters->memcpy.copyParams, parameters->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        const auto &in = parameters->memset;
        const CUDA_MEMSET_NODE_PARAMS fill{in.dst, in.pitch, in.value, in.elementSize, in.width, in.height};
        return plan(&fill, in.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        const CUDA_HOST_NODE_PARAMS host{parameters->host.fn, parameters->host.userData};
        return plan(&host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (parameters->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
            return refused(CUDA_ERROR_NOT_SUPPORTED);
        return plan_child(parameters->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return NodePlan{};
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return plan_event(parameters->eventWait.event, false);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return plan_event(parameters->eventRecord.event, true);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        auto &in = parameters->alloc;
        CUDA_MEM_ALLOC_NODE_PARAMS allocation{in.poolProps, in.accessDescs, in.accessDescCount, in.bytesize,
                                              0};
        auto planned = plan_allocation(&allocation);
        in.dptr = allocation.dptr;
        return planned;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return plan_free(parameters->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
        const auto &in = parameters->memOp;
        const CUDA_BATCH_MEM_OP_NODE_PARAMS batch{in.ctx, in.count, in.paramArray, in.flags};
        return plan(&batch);
    }
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return plan_conditional(parameters->conditional);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        kLog.error("graph nodes for external semaphores are not supported");
        return refused(CUDA_ERROR_NOT_SUPPORTED);
    }
    return refused(CUDA_ERROR_INVALID_VALUE);
}

CUresult add_node(CUgraphNode *out, CUgraph handle, const CUgraphNode *dependencies, std::size_t count,
                  Result<NodePlan> planned) {
    const auto graph = graphs().find(handle);
    if (out == nullptr || graph == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (!planned)
        return planned.error();
    const std::scoped_lock lock(graph_mutex());
    const auto nodes = nodes_of(*graph, dependencies, count);
    if (!nodes)
        return nodes.error();
    if (planned->child != nullptr && planned->child->has_conditionals()) {
        kLog.error("a graph with conditional nodes cannot be a child of another one");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (planned->conditional != nullptr && std::exchange(planned->conditional->has_node, true))
        return CUDA_ERROR_INVALID_VALUE; // a handle is for one node
    auto node = graph->add(planned->type, std::move(planned->operation), *nodes);
    if (!node)
        return node.error();
    (*node)->context = std::move(planned->context);
    if (planned->child != nullptr) {
        (*node)->child = planned->child->clone();
        (*node)->child->embedded = true;
    }
    (*node)->conditional = std::move(planned->conditional);
    for (std::size_t at = 0; at < planned->bodies; ++at) {
        const auto &body = (*node)->bodies.emplace_back(make_graph());
        body->embedded = true;
        (*node)->body_handles.push_back(body->handle);
    }
    if (planned->bodies_out != nullptr)
        *planned->bodies_out = (*node)->body_handles.data();
    *out = (*node)->handle;
    return CUDA_SUCCESS;
}

CUresult change_node(CUgraphNode handle, Result<NodePlan> planned) {
    const auto node = graph_nodes().find(handle);
    if (node == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (!planned)
        return planned.error();
    const std::scoped_lock lock(graph_mutex());
    if (node->type != planned->type || planned->child != nullptr || planned->conditional != nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    node->operation = std::move(planned->operation);
    return CUDA_SUCCESS;
}

CUresult change_node(CUgraphExec executable_handle, CUgraphNode handle, Result<NodePlan> planned) {
    const auto executable = graph_executables().find(executable_handle);
    if (executable == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (!planned)
        return planned.error();
    const std::scoped_lock lock(graph_mutex());
    ExecutableNode *const node = executable->find(handle);
    if (node == nullptr || node->type != planned->type || planned->conditional != nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    node->operation = std::move(planned->operation);
    executable->list.reset();
    return CUDA_SUCCESS;
}

} // namespace singularity::softgpu::driver
