// SPDX-License-Identifier: GPL-2.0-or-later
// Nodes of graphs: adding them, asking for and changing what they do.
#include "driver/api/entry.hpp"
#include "driver/event.hpp"
#include "driver/graph.hpp"
#include "driver/launch.hpp"
#include "driver/module.hpp"
#include "driver/node_plan.hpp"

#include <algorithm>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

// work(GraphNode &, Kind &): of nodes that hold that kind of operation.
template <class Kind, class Work>
CUresult with_operation(CUgraphNode handle, Work &&work) {
    return with_driver([&] {
        const auto node = graph_nodes().find(handle);
        if (node == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        const std::scoped_lock lock(graph_mutex());
        Kind *const operation = std::get_if<Kind>(&node->operation);
        return operation == nullptr ? CUDA_ERROR_INVALID_VALUE : std::forward<Work>(work)(*node, *operation);
    });
}

// The parameters are the node's own memory.
template <class Parameters>
CUresult describe(GraphNode &node, KernelOperation &kernel, Parameters *out) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    node.parameter_pointers.clear();
    for (const auto &parameter : kernel.function->info().parameters)
        node.parameter_pointers.push_back(kernel.parameters.data() + parameter.offset);
    *out = {};
    out->func = kernel.handle;
    if constexpr (requires { out->kern; }) {
        // Which of the two it is, the table of functions knows.
        if (functions().find(kernel.handle) == nullptr)
            out->func = nullptr, out->kern = std::bit_cast<CUkernel>(kernel.handle);
        out->ctx = node.context == nullptr ? nullptr : node.context->handle();
    }
    out->gridDimX = kernel.grid.x;
    out->gridDimY = kernel.grid.y;
    out->gridDimZ = kernel.grid.z;
    out->blockDimX = kernel.block.x;
    out->blockDimY = kernel.block.y;
    out->blockDimZ = kernel.block.z;
    out->sharedMemBytes = static_cast<unsigned>(kernel.dynamic_shared);
    out->kernelParams = node.parameter_pointers.empty() ? nullptr : node.parameter_pointers.data();
    return CUDA_SUCCESS;
}

CUresult get_attribute(const KernelOperation &kernel, CUlaunchAttributeID id, CUlaunchAttributeValue *out) {
    if (out == nullptr || id >= CU_LAUNCH_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *out = {};
    const auto found = std::ranges::find(kernel.attributes, id, &CUlaunchAttribute::id);
    if (found != kernel.attributes.end())
        *out = found->value;
    else if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        out->cooperative = kernel.cooperative ? 1 : 0;
    else if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        out->priority = kernel.priority;
    return CUDA_SUCCESS;
}

CUresult set_attribute(KernelOperation &kernel, CUlaunchAttributeID id, const CUlaunchAttributeValue *value) {
    if (value == nullptr || id >= CU_LAUNCH_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
        value->clusterDim.x * value->clusterDim.y * value->clusterDim.z > 1)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        kernel.cooperative = value->cooperative != 0;
    if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        kernel.priority = value->priority;
    std::erase_if(kernel.attributes, [&](const CUlaunchAttribute &one) { return one.id == id; });
    CUlaunchAttribute attribute{};
    attribute.id = id;
    attribute.value = *value;
    kernel.attributes.push_back(attribute);
    return CUDA_SUCCESS;
}

CUresult copy_attributes(CUgraphNode target, CUgraphNode source) {
    KernelOperation from;
    const CUresult read =
        with_operation<KernelOperation>(source, [&](GraphNode &, const KernelOperation &kernel) {
            from = kernel;
            return CUDA_SUCCESS;
        });
    if (read != CUDA_SUCCESS)
        return read;
    return with_operation<KernelOperation>(target, [&](GraphNode &, KernelOperation &kernel) {
        kernel.attributes = from.attributes;
        kernel.cooperative = from.cooperative;
        kernel.priority = from.priority;
        return CUDA_SUCCESS;
    });
}

CUresult give_event(CUgraphNode handle, CUevent *out, bool record) {
    if (record)
        return with_operation<EventRecord>(
            handle, [&](GraphNode &, EventRecord &one) { return give(out, one.handle); });
    return with_operation<EventWait>(handle,
                                     [&](GraphNode &, EventWait &one) { return give(out, one.handle); });
}

// add_node() with a plan that is made once the driver is there.
template <class Plan>
CUresult add(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, std::size_t count,
             Plan &&make) {
    return with_driver([&] { return add_node(out, graph, dependencies, count, std::forward<Plan>(make)()); });
}

template <class Plan>
CUresult change(CUgraphNode node, Plan &&make) {
    return with_driver([&] { return change_node(node, std::forward<Plan>(make)()); });
}

template <class Plan>
CUresult change(CUgraphExec executable, CUgraphNode node, Plan &&make) {
    return with_driver([&] { return change_node(executable, node, std::forward<Plan>(make)()); });
}

// The context of a copy or fill stays what it was.
CUcontext context_of_node(CUgraphNode handle) {
    const auto node = graph_nodes().find(handle);
    const std::scoped_lock lock(graph_mutex());
    return node == nullptr || node->context == nullptr ? nullptr : node->context->handle();
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                             size_t numDependencies) {
    return add(phGraphNode, hGraph, dependencies, numDependencies,
               [] { return Result<NodePlan>(NodePlan{}); });
}
CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, CUgraph childGraph) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan_child(childGraph); });
}
CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, CUevent event) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan_event(event, true); });
}
CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, CUevent event) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan_event(event, false); });
}
CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                               size_t numDependencies, CUdeviceptr dptr) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan_free(dptr); });
}
CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan(nodeParams); });
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan(nodeParams); });
}
CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan(nodeParams); });
}
CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan(copyParams, ctx); });
}
CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                              CUcontext ctx) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan(memsetParams, ctx); });
}
CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams) {
    return add(phGraphNode, hGraph, dependencies, numDependencies,
               [&] { return plan_allocation(nodeParams); });
}
CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan(nodeParams); });
}
CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan(nodeParams); });
}
CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData * /*dependencyData*/, size_t numDependencies,
                           CUgraphNodeParams *nodeParams) {
    return add(phGraphNode, hGraph, dependencies, numDependencies, [&] { return plan(nodeParams); });
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return with_operation<KernelOperation>(
        hNode, [&](GraphNode &node, KernelOperation &kernel) { return describe(node, kernel, nodeParams); });
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return with_operation<KernelOperation>(
        hNode, [&](GraphNode &node, KernelOperation &kernel) { return describe(node, kernel, nodeParams); });
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return change(hNode, [&] { return plan(nodeParams); });
}
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return change(hNode, [&] { return plan(nodeParams); });
}
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
    return copy_attributes(dst, src);
}
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue *value_out) {
    return with_operation<KernelOperation>(
        hNode, [&](GraphNode &, KernelOperation &kernel) { return get_attribute(kernel, attr, value_out); });
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue *value) {
    return with_operation<KernelOperation>(
        hNode, [&](GraphNode &, KernelOperation &kernel) { return set_attribute(kernel, attr, value); });
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams) {
    return with_operation<CopyOperation>(
        hNode, [&](GraphNode &, CopyOperation &copy) { return give(nodeParams, copy.description); });
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams) {
    return change(hNode, [&] { return plan(nodeParams, context_of_node(hNode)); });
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams) {
    return with_operation<FillOperation>(
        hNode, [&](GraphNode &, FillOperation &fill) { return give(nodeParams, fill.description); });
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams) {
    return change(hNode, [&] { return plan(nodeParams, context_of_node(hNode)); });
}
CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams) {
    return with_operation<HostOperation>(hNode, [&](GraphNode &, HostOperation &host) {
        return give(nodeParams, CUDA_HOST_NODE_PARAMS{host.function, host.data});
    });
}
CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams) {
    return change(hNode, [&] { return plan(nodeParams); });
}
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out) {
    return with_operation<AllocationOperation>(hNode, [&](GraphNode &, AllocationOperation &allocation) {
        CUDA_MEM_ALLOC_NODE_PARAMS parameters = allocation.description;
        parameters.accessDescs = allocation.access.empty() ? nullptr : allocation.access.data();
        parameters.accessDescCount = allocation.access.size();
        return give(params_out, parameters);
    });
}
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out) {
    return with_operation<FreeOperation>(
        hNode, [&](GraphNode &, FreeOperation &free) { return give(dptr_out, CUdeviceptr{free.address}); });
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph) {
    return with_operation<EmptyOperation>(hNode, [&](GraphNode &node, EmptyOperation &) {
        return node.child == nullptr ? CUDA_ERROR_INVALID_VALUE : give(phGraph, node.child->handle);
    });
}
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out) {
    return give_event(hNode, event_out, true);
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
    return change(hNode, [&] { return plan_event(event, true); });
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out) {
    return give_event(hNode, event_out, false);
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
    return change(hNode, [&] { return plan_event(event, false); });
}
CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
    return change(hNode, [&] { return plan(nodeParams); });
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return change(hGraphExec, hNode, [&] { return plan(nodeParams); });
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return change(hGraphExec, hNode, [&] { return plan(nodeParams); });
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    return change(hGraphExec, hNode, [&] { return plan(copyParams, ctx); });
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx) {
    return change(hGraphExec, hNode, [&] { return plan(memsetParams, ctx); });
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS *nodeParams) {
    return change(hGraphExec, hNode, [&] { return plan(nodeParams); });
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event) {
    return change(hGraphExec, hNode, [&] { return plan_event(event, true); });
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event) {
    return change(hGraphExec, hNode, [&] { return plan_event(event, false); });
}
CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
    return change(hGraphExec, hNode, [&] { return plan(nodeParams); });
}

} // extern "C"
