// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs: nodes and what comes before what, and executable copies of them. The structure of all graphs, and
// all capturing, is guarded by graph_mutex(), which nobody holds while work runs.
#pragma once

#include "driver/conditional.hpp"
#include "driver/context.hpp"
#include "driver/handles.hpp"
#include "driver/operation.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace singularity::softgpu::driver {

class Graph;

struct GraphNode {
    CUgraphNode handle = nullptr;
    std::weak_ptr<Graph> graph;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    Operation operation;
    std::shared_ptr<Context> context; // nodes that run on a device
    std::shared_ptr<Graph> child;
    // Of a conditional node; its operation has no bodies yet.
    std::shared_ptr<Conditional> conditional;
    std::vector<std::shared_ptr<Graph>> bodies;
    std::vector<CUgraph> body_handles;     // the array that the program gets
    std::vector<GraphNode *> dependencies; // in the order they were given
    std::vector<GraphNode *> dependents;
    CUgraphNode original = nullptr;          // the one it was cloned from
    std::vector<void *> parameter_pointers;  // of kernels, for those who ask
    std::vector<CUgraphNode> reported_nodes; // of capture information
};

// A counted pointer of the program's, with its end.
class UserObject {
  public:
    UserObject(void *pointer, CUhostFn destroy, std::uint64_t count)
        : pointer_(pointer), destroy_(destroy), count_(count) {}
    void retain(std::uint64_t count) { count_ += count; }
    // True: that was the last.
    [[nodiscard]] bool release(std::uint64_t count);

    CUuserObject handle = nullptr;

  private:
    void *pointer_;
    CUhostFn destroy_;
    std::atomic<std::uint64_t> count_;
};

// A graph's share of a user object.
using UserReferences = std::map<CUuserObject, std::uint64_t>;

class Graph : public std::enable_shared_from_this<Graph> {
  public:
    Graph() = default;
    ~Graph();
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;
    Graph(Graph &&) = delete;
    Graph &operator=(Graph &&) = delete;

    [[nodiscard]] Result<std::shared_ptr<GraphNode>>
    add(CUgraphNodeType type, Operation operation,
        const std::vector<std::shared_ptr<GraphNode>> &dependencies);
    [[nodiscard]] CUresult connect(GraphNode &from, GraphNode &to);
    [[nodiscard]] CUresult disconnect(GraphNode &from, GraphNode &to);
    void remove(GraphNode &node);
    [[nodiscard]] std::shared_ptr<Graph> clone() const; // with handles, its nodes with the original's
    // Such a graph is neither cloned nor put into another one. (cuda.h, CU_GRAPH_NODE_TYPE_CONDITIONAL)
    [[nodiscard]] bool has_conditionals() const;
    // In an order that dependencies allow, the same every time.
    [[nodiscard]] std::vector<std::shared_ptr<GraphNode>> ordered() const;
    // Whether `before` is `after` or has it among those that come later.
    [[nodiscard]] static bool leads_to(const GraphNode &before, const GraphNode &after);

    CUgraph handle = nullptr;
    bool embedded = false; // the child of a node: not the program's to destroy
    std::vector<std::shared_ptr<GraphNode>> nodes;
    std::unordered_map<CUgraphNode, CUgraphNode> twins; // of a clone: nodes by the originals'
    UserReferences references;
    std::vector<std::shared_ptr<Conditional>> conditionals; // whose handles were made for it
};

struct ExecutableNode {
    CUgraphNode node = nullptr; // of the graph it was made of, or of an embedded one
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    Operation operation;
    std::vector<std::size_t> dependencies;
    bool enabled = true;
    std::vector<std::vector<ExecutableNode>> bodies = {}; // of a conditional node
};

class GraphExecutable {
  public:
    ~GraphExecutable();
    GraphExecutable() = default;
    GraphExecutable(const GraphExecutable &) = delete;
    GraphExecutable &operator=(const GraphExecutable &) = delete;
    GraphExecutable(GraphExecutable &&) = delete;
    GraphExecutable &operator=(GraphExecutable &&) = delete;

    CUgraphExec handle = nullptr;
    CUgraph graph = nullptr;
    unsigned long long flags = 0;
    std::vector<ExecutableNode> nodes;
    UserReferences references;
    std::shared_ptr<const OperationList> list; // of `nodes` as they are; nullptr: make it anew
    CompletionPtr last_launch;                 // launches of one executable come one after the other
    std::vector<std::shared_ptr<Conditional>> conditionals; // of its nodes

    [[nodiscard]] ExecutableNode *find(CUgraphNode node);
};

[[nodiscard]] std::mutex &graph_mutex();
[[nodiscard]] Handles<Graph, CUgraph, HandleKind::graph> &graphs();
[[nodiscard]] Handles<GraphNode, CUgraphNode, HandleKind::graph_node> &graph_nodes();
[[nodiscard]] Handles<GraphExecutable, CUgraphExec, HandleKind::graph_exec> &graph_executables();
[[nodiscard]] Handles<UserObject, CUuserObject, HandleKind::user_object> &user_objects();

[[nodiscard]] std::shared_ptr<Graph> make_graph();
// Nodes of this graph by their handles.
[[nodiscard]] Result<std::vector<std::shared_ptr<GraphNode>>>
nodes_of(const Graph &graph, const CUgraphNode *handles, std::size_t count);
[[nodiscard]] std::vector<ExecutableNode> flatten(const Graph &graph);
// What the handles of its conditional nodes stand for, bodies included.
[[nodiscard]] std::vector<std::shared_ptr<Conditional>> conditionals_of(const Graph &graph);

// Memory of graphs. For calls it is allocated by the launch of a graph with its allocation node, and free
// when the free of it, or the launch of a graph with one, was called; for the device, when that runs.
[[nodiscard]] Result<AllocationOperation> make_graph_allocation(CUDA_MEM_ALLOC_NODE_PARAMS &parameters);
[[nodiscard]] CUresult allocate_for_graph(Context &context, const AllocationOperation &allocation);
// In stream order: unless it was allocated again by a later launch.
void free_of_graph(std::uint64_t address);
// Before a launch: what its nodes do to memory, in their order. Without `again`: memory that is still
// allocated is an error.
[[nodiscard]] CUresult launch_memory(Context &context, const std::vector<ExecutableNode> &nodes, bool again);
struct GraphMemory {
    bool allocated = false;
    CUcontext context = nullptr; // of the last launch
};
// Memory of a graph that begins at the address.
[[nodiscard]] std::optional<GraphMemory> graph_memory_at(std::uint64_t address);
// A call frees it; false: it is not allocated.
[[nodiscard]] bool end_graph_memory(std::uint64_t address);
// Whether the address lies in memory that a node of some graph is going to allocate.
[[nodiscard]] bool is_graph_memory(std::uint64_t address);

// Captures in the context are over.
void end_captures(const Context &context);

} // namespace singularity::softgpu::driver
