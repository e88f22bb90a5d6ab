// SPDX-License-Identifier: GPL-2.0-or-later
// What a graph node does, from each of the ways to say it. The same for adding a node, for changing one, and
// for changing one of an executable graph.
#pragma once

#include "driver/graph.hpp"

namespace singularity::softgpu::driver {

struct NodePlan {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    Operation operation;
    std::shared_ptr<Context> context;
    std::shared_ptr<Graph> child = nullptr; // to be cloned
    std::shared_ptr<Conditional> conditional = nullptr;
    std::size_t bodies = 0;         // graphs that a conditional node gets
    CUgraph **bodies_out = nullptr; // where it says which
};

[[nodiscard]] Result<NodePlan> plan(const CUDA_KERNEL_NODE_PARAMS_v2 *parameters);
[[nodiscard]] Result<NodePlan> plan(const CUDA_KERNEL_NODE_PARAMS_v1 *parameters);
[[nodiscard]] Result<NodePlan> plan(const CUDA_MEMCPY3D *parameters, CUcontext context);
[[nodiscard]] Result<NodePlan> plan(const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context);
[[nodiscard]] Result<NodePlan> plan(const CUDA_HOST_NODE_PARAMS *parameters);
[[nodiscard]] Result<NodePlan> plan(const CUDA_BATCH_MEM_OP_NODE_PARAMS *parameters);
[[nodiscard]] Result<NodePlan> plan_event(CUevent event, bool record);
[[nodiscard]] Result<NodePlan> plan_allocation(CUDA_MEM_ALLOC_NODE_PARAMS *parameters);
[[nodiscard]] Result<NodePlan> plan_free(CUdeviceptr address);
[[nodiscard]] Result<NodePlan> plan_child(CUgraph graph);
[[nodiscard]] Result<NodePlan> plan_conditional(CUDA_CONDITIONAL_NODE_PARAMS &parameters);
// By type; writes what the type gives back (the address of an allocation, the bodies of a conditional node).
[[nodiscard]] Result<NodePlan> plan(CUgraphNodeParams *parameters);

// The plan becomes a node.
[[nodiscard]] CUresult add_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies,
                                std::size_t count, Result<NodePlan> plan);
// The node is changed; its type must be the plan's.
[[nodiscard]] CUresult change_node(CUgraphNode node, Result<NodePlan> plan);
[[nodiscard]] CUresult change_node(CUgraphExec executable, CUgraphNode node, Result<NodePlan> plan);

} // namespace singularity::softgpu::driver
