// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs: their structure, and the user objects that they keep alive.
#include "common/error.hpp"
#include "driver/api/entry.hpp"
#include "driver/graph.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace singularity::softgpu::driver {

namespace {

// work(Graph &), under the lock of all graphs.
template <class Work>
CUresult with_graph(CUgraph handle, Work &&work) {
    return with_driver([&] {
        const auto graph = graphs().find(handle);
        if (graph == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        const std::scoped_lock lock(graph_mutex());
        return std::forward<Work>(work)(*graph);
    });
}

template <class Work>
CUresult with_node(CUgraphNode handle, Work &&work) {
    return with_driver([&] {
        const auto node = graph_nodes().find(handle);
        if (node == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        const std::scoped_lock lock(graph_mutex());
        return std::forward<Work>(work)(*node);
    });
}

CUresult create(CUgraph *out, unsigned flags) {
    if (out == nullptr || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = make_graph()->handle;
    return CUDA_SUCCESS;
}

CUresult destroy(CUgraph handle) {
    const auto graph = graphs().find(handle);
    if (graph == nullptr || graph->embedded)
        return CUDA_ERROR_INVALID_VALUE;
    const auto last = graphs().take(handle);
    return CUDA_SUCCESS;
}

// The two-call form of every list: a null array asks for the number; room that is left over is cleared.
template <class T>
CUresult give_list(const std::vector<T> &list, T *out, std::size_t *count) {
    if (count == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (out == nullptr) {
        *count = list.size();
        return CUDA_SUCCESS;
    }
    const std::size_t given = std::min(*count, list.size());
    std::copy_n(list.begin(), given, out);
    std::fill(out + given, out + *count, T{});
    *count = given;
    return CUDA_SUCCESS;
}

template <class Nodes>
std::vector<CUgraphNode> handles_of(const Nodes &nodes) {
    std::vector<CUgraphNode> out;
    for (const auto &node : nodes)
        out.push_back(node->handle);
    return out;
}

CUresult get_edges(const Graph &graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                   std::size_t *count) {
    std::vector<CUgraphNode> begins;
    std::vector<CUgraphNode> ends;
    for (const auto &node : graph.nodes)
        for (const GraphNode *dependency : node->dependencies) {
            begins.push_back(dependency->handle);
            ends.push_back(node->handle);
        }
    if (count == nullptr || (from == nullptr) != (to == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    std::size_t room = *count;
    const CUresult first = give_list(begins, from, &room);
    const CUresult second = give_list(ends, to, count);
    if (data != nullptr && from != nullptr)
        std::fill_n(data, *count, CUgraphEdgeData{});
    return first != CUDA_SUCCESS ? first : second;
}

CUresult get_neighbours(const std::vector<GraphNode *> &list, CUgraphNode *out, CUgraphEdgeData *data,
                        std::size_t *count) {
    const CUresult given = give_list(handles_of(list), out, count);
    if (given == CUDA_SUCCESS && data != nullptr && out != nullptr)
        std::fill_n(data, *count, CUgraphEdgeData{});
    return given;
}

CUresult change_edges(Graph &graph, const CUgraphNode *from, const CUgraphNode *to, std::size_t count,
                      bool add) {
    const auto begins = nodes_of(graph, from, count);
    const auto ends = nodes_of(graph, to, count);
    if (!begins || !ends)
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t at = 0; at < count; ++at) {
        const CUresult one = add ? graph.connect(*(*begins)[at], *(*ends)[at])
                                 : graph.disconnect(*(*begins)[at], *(*ends)[at]);
        if (one != CUDA_SUCCESS)
            return one;
    }
    return CUDA_SUCCESS;
}

CUresult find_in_clone(CUgraphNode *out, CUgraphNode original, const Graph &clone) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto found = clone.twins.find(original);
    if (found == clone.twins.end())
        return CUDA_ERROR_INVALID_VALUE;
    *out = found->second;
    return CUDA_SUCCESS;
}

CUresult destroy_node(CUgraphNode handle) {
    const auto node = graph_nodes().find(handle); // ends after the lock
    if (node == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const std::scoped_lock lock(graph_mutex());
    const auto graph = node->graph.lock();
    if (graph == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    // Memory of a graph belongs to all of it.
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_NOT_SUPPORTED;
    graph->remove(*node);
    return CUDA_SUCCESS;
}

constexpr std::array<const char *, 14> kTypeNames{"kernel",
                                                  "memcpy",
                                                  "memset",
                                                  "host",
                                                  "graph",
                                                  "empty",
                                                  "event wait",
                                                  "event record",
                                                  "signal",
                                                  "wait",
                                                  "memory allocation",
                                                  "memory free",
                                                  "batch mem op",
                                                  "conditional"};

CUresult print_dot(const Graph &graph, const char *path) {
    if (path == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    std::string text = "digraph dot {\n";
    for (std::size_t at = 0; at < graph.nodes.size(); ++at) {
        const GraphNode &node = *graph.nodes[at];
        text += fmt::format("    n{} [label=\"{} {}\"];\n", at, at,
                            kTypeNames.at(static_cast<std::size_t>(node.type)));
        for (const GraphNode *dependency : node.dependencies) {
            const auto before =
                std::ranges::find(graph.nodes, dependency, [](const auto &one) { return one.get(); });
            text += fmt::format("    n{} -> n{};\n", before - graph.nodes.begin(), at);
        }
    }
    text += "}\n";
    std::ofstream file(path);
    file << text;
    file.close();
    return file ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

// --- User objects

CUresult create_object(CUuserObject *out, void *pointer, CUhostFn destroy, unsigned count, unsigned flags) {
    if (out == nullptr || destroy == nullptr || count == 0 || count > INT32_MAX ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    auto object = std::make_shared<UserObject>(pointer, destroy, count);
    object->handle = user_objects().reserve();
    user_objects().put(object->handle, object);
    *out = object->handle;
    return CUDA_SUCCESS;
}

CUresult release_object(CUuserObject handle, std::uint64_t count) {
    const auto object = user_objects().find(handle);
    if (object == nullptr || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (object->release(count))
        user_objects().take(handle);
    return CUDA_SUCCESS;
}

CUresult retain_object(CUuserObject handle, unsigned count) {
    const auto object = user_objects().find(handle);
    if (object == nullptr || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    object->retain(count);
    return CUDA_SUCCESS;
}

CUresult give_to_graph(Graph &graph, CUuserObject handle, unsigned count, unsigned flags) {
    const auto object = user_objects().find(handle);
    if (object == nullptr || count == 0 || flags > CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags != CU_GRAPH_USER_OBJECT_MOVE)
        object->retain(count);
    graph.references[handle] += count;
    return CUDA_SUCCESS;
}

CUresult take_from_graph(CUgraph graph_handle, CUuserObject handle, unsigned count) {
    const CUresult taken = with_graph(graph_handle, [&](Graph &graph) {
        const auto found = graph.references.find(handle);
        if (found == graph.references.end() || found->second < count || count == 0)
            return CUDA_ERROR_INVALID_VALUE;
        if ((found->second -= count) == 0)
            graph.references.erase(found);
        return CUDA_SUCCESS;
    });
    return taken == CUDA_SUCCESS ? release_object(handle, count) : taken;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags) {
    return with_driver([&] { return create(phGraph, flags); });
}
CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph) {
    return with_graph(originalGraph, [&](Graph &graph) {
        if (phGraphClone == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        if (graph.has_conditionals())
            return CUDA_ERROR_NOT_SUPPORTED;
        *phGraphClone = graph.clone()->handle;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx,
                                        unsigned int defaultLaunchValue, unsigned int flags) {
    return with_graph(hGraph, [&](Graph &graph) {
        const auto context = context_of(ctx);
        if (pHandle_out == nullptr || (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        if (!context)
            return context.error();
        const bool with_default = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
        auto made = make_conditional(**context, with_default ? defaultLaunchValue : 0);
        *pHandle_out = made->number();
        graph.conditionals.push_back(std::move(made));
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphDestroy(CUgraph hGraph) {
    return with_driver([&] { return destroy(hGraph); });
}
CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph) {
    return with_graph(hClonedGraph,
                      [&](Graph &graph) { return find_in_clone(phNode, hOriginalNode, graph); });
}
CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type) {
    return with_node(hNode, [&](GraphNode &node) {
        if (type == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *type = node.type;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
    return with_graph(hGraph,
                      [&](Graph &graph) { return give_list(handles_of(graph.nodes), nodes, numNodes); });
}
CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes) {
    return with_graph(hGraph, [&](Graph &graph) {
        std::vector<CUgraphNode> roots;
        for (const auto &node : graph.nodes)
            if (node->dependencies.empty())
                roots.push_back(node->handle);
        return give_list(roots, rootNodes, numRootNodes);
    });
}
CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges) {
    return with_graph(hGraph, [&](Graph &graph) { return get_edges(graph, from, to, nullptr, numEdges); });
}
CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                            size_t *numEdges) {
    return with_graph(hGraph, [&](Graph &graph) { return get_edges(graph, from, to, edgeData, numEdges); });
}
CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies) {
    return with_node(hNode, [&](GraphNode &node) {
        return get_neighbours(node.dependencies, dependencies, nullptr, numDependencies);
    });
}
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                       CUgraphEdgeData *edgeData, size_t *numDependencies) {
    return with_node(hNode, [&](GraphNode &node) {
        return get_neighbours(node.dependencies, dependencies, edgeData, numDependencies);
    });
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                      size_t *numDependentNodes) {
    return with_node(hNode, [&](GraphNode &node) {
        return get_neighbours(node.dependents, dependentNodes, nullptr, numDependentNodes);
    });
}
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                         CUgraphEdgeData *edgeData, size_t *numDependentNodes) {
    return with_node(hNode, [&](GraphNode &node) {
        return get_neighbours(node.dependents, dependentNodes, edgeData, numDependentNodes);
    });
}
CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t numDependencies) {
    return with_graph(hGraph,
                      [&](Graph &graph) { return change_edges(graph, from, to, numDependencies, true); });
}
CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData * /*edgeData*/, size_t numDependencies) {
    return cuGraphAddDependencies(hGraph, from, to, numDependencies);
}
CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t numDependencies) {
    return with_graph(hGraph,
                      [&](Graph &graph) { return change_edges(graph, from, to, numDependencies, false); });
}
CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData * /*edgeData*/, size_t numDependencies) {
    return cuGraphRemoveDependencies(hGraph, from, to, numDependencies);
}
CUresult cuGraphDestroyNode(CUgraphNode hNode) {
    return with_driver([&] { return destroy_node(hNode); });
}
CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int /*flags*/) {
    return with_graph(hGraph, [&](Graph &graph) { return print_dot(graph, path); });
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
    return with_driver([&] { return create_object(object_out, ptr, destroy, initialRefcount, flags); });
}
CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
    return with_driver([&] { return retain_object(object, count); });
}
CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
    return with_driver([&] { return release_object(object, count); });
}
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
    return with_graph(graph, [&](Graph &one) { return give_to_graph(one, object, count, flags); });
}
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
    return with_driver([&] { return take_from_graph(graph, object, count); });
}

} // extern "C"
