// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs. A node's parameters are a body, one of the structs below, and a variable part (`parameters`): the
// kernel's parameter buffer, or the operations of a batch. One form for all ways to make, ask and change a
// node.
#pragma once

#include "proxy/protocol/copy.hpp"
#include "proxy/protocol/launch.hpp"

namespace singularity::protocol {

// Values of CUgraphNodeType. There are no conditional nodes: no program gets a handle for one.
enum class NodeType : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    kernel = 0,
    memcpy = 1,
    memset = 2,
    host = 3,
    graph = 4,
    empty = 5,
    wait_event = 6,
    event_record = 7,
    batch_mem_op = 12,
};

// parameters: as in LaunchKernel
struct KernelBody {
    LaunchShape shape{};
    std::uint64_t context = 0; // handle; 0: the record's
};

// Places are never `data`: the client stages memory that is not shared.
struct MemcpyBody {
    Place destination{};
    Place source{};
    Box box{};
    std::uint64_t context = 0;
};

// CUDA_MEMSET_NODE_PARAMS_v2
struct MemsetBody {
    std::uint64_t destination = 0;
    std::uint64_t pitch = 0;
    std::uint64_t width = 0; // elements
    std::uint64_t height = 0;
    std::uint32_t value = 0;
    std::uint32_t element_size = 0;
    std::uint64_t context = 0;
};

// Called each time that the graph runs.
struct HostBody {
    std::uint64_t function = 0; // as in LaunchHostFunction
    std::uint64_t data = 0;
};

struct ChildGraphBody {
    std::uint64_t graph = 0;
    std::uint64_t ownership = 0; // CUgraphChildGraphNodeOwnership
};

struct EmptyBody {
    std::uint64_t reserved = 0;
};

// wait_event and event_record
struct EventBody {
    std::uint64_t event = 0;
};

// parameters: CUstreamBatchMemOpParams[]
struct BatchMemOpBody {
    std::uint64_t context = 0;
    std::uint32_t flags = 0;
    std::uint32_t reserved = 0;
};

// Bytes of the body of a type; 0: there is no such type.
[[nodiscard]] constexpr std::size_t body_size(std::uint32_t type) {
    switch (static_cast<NodeType>(type)) {
    case NodeType::kernel:
        return sizeof(KernelBody);
    case NodeType::memcpy:
        return sizeof(MemcpyBody);
    case NodeType::memset:
        return sizeof(MemsetBody);
    case NodeType::host:
        return sizeof(HostBody);
    case NodeType::graph:
        return sizeof(ChildGraphBody);
    case NodeType::empty:
        return sizeof(EmptyBody);
    case NodeType::wait_event:
    case NodeType::event_record:
        return sizeof(EventBody);
    case NodeType::batch_mem_op:
        return sizeof(BatchMemOpBody);
    }
    return 0;
}

namespace detail {
[[nodiscard]] inline const char *wrong_body(std::uint32_t type, const View &body, const View &parameters) {
    if (body_size(type) == 0)
        return "there is no such type of node";
    if (body.bytes.size() != body_size(type))
        return "the body is not of the node's type";
    return parameters.present && parameters.bytes.size() > kMostParameters
               ? "more parameters than a node can have"
               : nullptr;
}
} // namespace detail

struct AddNode {
    static constexpr Id kId = Id::add_node;
    static constexpr const char *kName = "AddNode";
    // dependencies: handles of kind "graph_node"; edges: CUgraphEdgeData, absent or as many
    static constexpr std::array<Buffer, 4> kBuffers{{{"dependencies", 8, Nullable::yes},
                                                     {"edges", 8, Nullable::yes},
                                                     {"body"},
                                                     {"parameters", 1, Nullable::yes}}};
    using Reply = Nothing;
    std::uint64_t graph = 0;
    std::uint64_t node = 0; // the new handle, kind "graph_node"
    std::uint32_t type = 0; // NodeType
    std::uint32_t reserved = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 4> &buffers) const {
        if (buffers[1].present && buffers[1].bytes.size() != buffers[0].bytes.size())
            return "edges without dependencies";
        return detail::wrong_body(type, buffers[2], buffers[3]);
    }
};

// cuGraph<Type>NodeSetParams, or with `exec` cuGraphExec<Type>NodeSetParams.
struct SetNode {
    static constexpr Id kId = Id::set_node;
    static constexpr const char *kName = "SetNode";
    static constexpr std::array<Buffer, 2> kBuffers{{{"body"}, {"parameters", 1, Nullable::yes}}};
    using Reply = Nothing;
    std::uint64_t exec = 0; // handle; 0: the node itself
    std::uint64_t node = 0;
    std::uint32_t type = 0;
    std::uint32_t reserved = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 2> &buffers) const {
        return detail::wrong_body(type, buffers[0], buffers[1]);
    }
};

struct GetNodeReply {
    static constexpr std::array<Buffer, 2> kBuffers{
        {{"body", 1, Nullable::yes}, {"parameters", 1, Nullable::yes}}};
    std::uint32_t type = 0;
    std::uint32_t reserved = 0;
};

// cuGraph<Type>NodeGetParams for kernel, memcpy, host and batch nodes.
struct GetNode {
    static constexpr Id kId = Id::get_node;
    static constexpr const char *kName = "GetNode";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = GetNodeReply;
    std::uint64_t node = 0;
};

// cuGraphKernelNodeGetAttribute
struct GetNodeAttribute {
    static constexpr Id kId = Id::get_node_attribute;
    static constexpr const char *kName = "GetNodeAttribute";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = AttributeValue;
    std::uint64_t node = 0;
    std::uint32_t attribute = 0;
    std::uint32_t reserved = 0;
};

struct SetNodeAttribute {
    static constexpr Id kId = Id::set_node_attribute;
    static constexpr const char *kName = "SetNodeAttribute";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t node = 0;
    std::uint32_t attribute = 0;
    std::uint32_t reserved = 0;
    std::array<std::byte, 64> value{};
};

struct InstantiateGraphReply {
    static constexpr std::array<Buffer, 0> kBuffers{};
    std::uint64_t error_node = 0; // handle or 0
    std::uint32_t outcome = 0;    // CUgraphInstantiateResult
    std::uint32_t reserved = 0;
};

// cuGraphInstantiateWithParams
struct InstantiateGraph {
    static constexpr Id kId = Id::instantiate_graph;
    static constexpr const char *kName = "InstantiateGraph";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = InstantiateGraphReply;
    std::uint64_t graph = 0;
    std::uint64_t exec = 0; // the new handle, kind "graph_exec"
    std::uint64_t flags = 0;
    std::uint64_t upload_stream = 0; // wire number; 0: none
};

// What a graph does between two of its collectives: the part in front of the collective of the same place,
// and, last, what is behind them all.
struct PartOfGraph {
    std::uint64_t nodes = 0; // 0: there is no such executable graph
    std::uint64_t after = 0; // so many collectives have to be complete before it
};

struct InstantiatePartsReply {
    static constexpr std::array<Buffer, 1> kBuffers{{{"parts", sizeof(PartOfGraph), Nullable::yes}}};
    std::uint32_t outcome = 0;     // CUgraphInstantiateResult
    std::uint32_t wrong_order = 0; // 1: the edges do not allow the collectives' order
};

inline constexpr std::size_t kMostGraphCollectives = 8192;

// A graph with collectives, in parts. NOT_SUPPORTED with wrong_order: none was made.
struct InstantiateParts {
    static constexpr Id kId = Id::instantiate_parts;
    static constexpr const char *kName = "InstantiateParts";
    // collectives: handles of kind "graph_node", in the order in which they are issued; execs: the new
    // handles, kind "graph_exec", of the parts, one more
    static constexpr std::array<Buffer, 2> kBuffers{{{"collectives", 8}, {"execs", 8}}};
    using Reply = InstantiatePartsReply;
    std::uint64_t graph = 0;
    std::uint64_t flags = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 2> &buffers) const {
        const auto collectives = buffers[0].bytes.size() / 8;
        return buffers[1].bytes.size() / 8 != collectives + 1 ? "as many parts as collectives and one more"
               : collectives > kMostGraphCollectives          ? "too many collectives in a graph"
                                                              : nullptr;
    }
};

struct UpdateGraphExecReply {
    static constexpr std::array<Buffer, 0> kBuffers{};
    std::uint64_t error_node = 0;
    std::uint64_t error_from_node = 0;
    std::uint32_t outcome = 0; // CUgraphExecUpdateResult; set even where the result is an error
    std::uint32_t reserved = 0;
};

// cuGraphExecUpdate_v2
struct UpdateGraphExec {
    static constexpr Id kId = Id::update_graph_exec;
    static constexpr const char *kName = "UpdateGraphExec";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = UpdateGraphExecReply;
    std::uint64_t exec = 0;
    std::uint64_t graph = 0;
};

struct PrintGraphReply {
    static constexpr std::array<Buffer, 1> kBuffers{{{"text", 1, Nullable::yes}}};
};

// cuGraphDebugDotPrint; the client writes the file. OUT_OF_MEMORY where the text is longer than kReadPiece.
struct PrintGraph {
    static constexpr Id kId = Id::print_graph;
    static constexpr const char *kName = "PrintGraph";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = PrintGraphReply;
    std::uint64_t graph = 0;
    std::uint32_t flags = 0;
    std::uint32_t reserved = 0;
};

// CUDA_RESOURCE_DESC without pointers.
struct Resource {
    std::uint32_t type = 0; // CUresourcetype
    std::uint32_t flags = 0;
    std::uint64_t object = 0; // handle of kind "array" or "mipmap", or a device address
    std::uint32_t format = 0; // linear and pitched memory
    std::uint32_t channels = 0;
    std::uint64_t size = 0;  // linear: bytes
    std::uint64_t width = 0; // pitched
    std::uint64_t height = 0;
    std::uint64_t pitch = 0;
};

// The driver's own number for a texture or surface: kernels are given it as a parameter, so the program must
// have it, not a handle of ours.
struct ObjectValue {
    static constexpr std::array<Buffer, 0> kBuffers{};
    std::uint64_t value = 0;
};

struct CreateTexture {
    static constexpr Id kId = Id::create_texture;
    static constexpr const char *kName = "CreateTexture";
    // texture: CUDA_TEXTURE_DESC; view: CUDA_RESOURCE_VIEW_DESC
    static constexpr std::array<Buffer, 2> kBuffers{{{"texture"}, {"view", 1, Nullable::yes}}};
    using Reply = ObjectValue;
    std::uint64_t texture = 0; // the new handle, kind "texture"
    Resource resource{};
};

struct CreateSurface {
    static constexpr Id kId = Id::create_surface;
    static constexpr const char *kName = "CreateSurface";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = ObjectValue;
    std::uint64_t surface = 0; // the new handle, kind "surface"
    Resource resource{};
};

} // namespace singularity::protocol
