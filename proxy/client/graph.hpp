// SPDX-License-Identifier: GPL-2.0-or-later
// Nodes of graphs: from the driver's many structs to the one form in which they travel, and back.
#pragma once

#include "box_copy.hpp"
#include "launch.hpp"
#include "proxy/protocol/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace singularity::client {

struct NodeContent {
    protocol::NodeType type = protocol::NodeType::empty;
    std::vector<std::byte> body;
    std::vector<std::byte> parameters;
    bool has_parameters = false;

    template <class Body>
    void set(protocol::NodeType its_type, const Body &value) {
        static_assert(sizeof(Body) % 8 == 0);
        type = its_type;
        const auto bytes = std::as_bytes(std::span(&value, 1));
        body.assign(bytes.begin(), bytes.end());
    }
};

// What a node depends on.
struct Dependencies {
    const CUgraphNode *nodes = nullptr;
    const CUgraphEdgeData *edges = nullptr;
    std::size_t count = 0;
};

// The graph's route; its context is the current one if that is on the graph's device.
[[nodiscard]] CUresult graph_route(CUgraph graph, Route &route);
[[nodiscard]] CUresult node_route(CUgraphNode node, Route &route);

[[nodiscard]] CUresult content_of(const CUDA_KERNEL_NODE_PARAMS_v3 &node, const Route &route,
                                  NodeContent &content);
// `staged`: set where an end is the program's own memory.
[[nodiscard]] CUresult content_of(const CUDA_MEMCPY3D &node, CUcontext context, const Route &route,
                                  NodeContent &content, std::unique_ptr<StagedBox> &staged);
[[nodiscard]] CUresult content_of(const CUDA_MEMSET_NODE_PARAMS_v2 &node, NodeContent &content);
[[nodiscard]] CUresult content_of(const CUDA_HOST_NODE_PARAMS_v2 &node, NodeContent &content);
[[nodiscard]] CUresult content_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 &node, NodeContent &content);

[[nodiscard]] CUresult add_node(CUgraphNode *out, CUgraph graph, const Route &route,
                                const Dependencies &dependencies, const NodeContent &content);
[[nodiscard]] CUresult add_copy_node(CUgraphNode *out, CUgraph graph, const Route &route,
                                     const Dependencies &dependencies, const CUDA_MEMCPY3D &copy,
                                     CUcontext context);
// exec: 0, or whose node it is.
[[nodiscard]] CUresult set_node(std::uint64_t exec, CUgraphNode node, const NodeContent &content);
[[nodiscard]] CUresult set_copy_node(std::uint64_t exec, CUgraphNode node, const CUDA_MEMCPY3D &copy,
                                     CUcontext context);
// wanted: what type the node must have.
[[nodiscard]] CUresult get_node(CUgraphNode node, protocol::NodeType wanted, NodeContent &content);
[[nodiscard]] NodeObject *node_object(CUgraphNode node);

// Of an answer to CaptureInfo: 12000 nodes with their edges.
inline constexpr std::size_t kMostCaptureBytes = std::size_t{12000} * 16;
// The graph that the stream's capture adds to; 0: there is none.
[[nodiscard]] std::uint64_t captured_graph(CUstream stream);

} // namespace singularity::client
