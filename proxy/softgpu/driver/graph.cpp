// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/graph.hpp"

#include "driver/platform.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <set>
#include <utility>

namespace singularity::softgpu::driver {

std::mutex &graph_mutex() {
    static auto &mutex = *new std::mutex; // outlives every thread
    return mutex;
}
Handles<Graph, CUgraph, HandleKind::graph> &graphs() {
    static auto &table = *new Handles<Graph, CUgraph, HandleKind::graph>; // outlives every thread
    return table;
}
Handles<GraphNode, CUgraphNode, HandleKind::graph_node> &graph_nodes() {
    static auto &table =
        *new Handles<GraphNode, CUgraphNode, HandleKind::graph_node>; // outlives every thread
    return table;
}
Handles<GraphExecutable, CUgraphExec, HandleKind::graph_exec> &graph_executables() {
    static auto &table =
        *new Handles<GraphExecutable, CUgraphExec, HandleKind::graph_exec>; // outlives every thread
    return table;
}
Handles<UserObject, CUuserObject, HandleKind::user_object> &user_objects() {
    static auto &table =
        *new Handles<UserObject, CUuserObject, HandleKind::user_object>; // outlives every thread
    return table;
}

bool UserObject::release(std::uint64_t count) {
    if (count_.fetch_sub(count) != count)
        return false;
    destroy_(pointer_);
    return true;
}

namespace {

// Graphs inside of a node have handles, and end with it.
void end_inner_graphs(const GraphNode &node) {
    if (node.child != nullptr)
        graphs().take(node.child->handle);
    for (const auto &body : node.bodies)
        graphs().take(body->handle);
}

void release_all(UserReferences &references) {
    for (const auto &[handle, count] : references)
        if (const auto object = user_objects().find(handle); object != nullptr && object->release(count))
            user_objects().take(handle);
    references.clear();
}

} // namespace

Graph::~Graph() {
    for (const auto &node : nodes) {
        graph_nodes().take(node->handle);
        end_inner_graphs(*node);
    }
    release_all(references);
}

GraphExecutable::~GraphExecutable() { release_all(references); }

std::shared_ptr<Graph> make_graph() {
    auto graph = std::make_shared<Graph>();
    graph->handle = graphs().reserve();
    graphs().put(graph->handle, graph);
    return graph;
}

Result<std::shared_ptr<GraphNode>> Graph::add(CUgraphNodeType type, Operation operation,
                                              const std::vector<std::shared_ptr<GraphNode>> &dependencies) {
    auto node = std::make_shared<GraphNode>();
    node->graph = weak_from_this();
    node->type = type;
    node->operation = std::move(operation);
    for (const auto &dependency : dependencies) {
        if (std::ranges::contains(node->dependencies, dependency.get()))
            return refused(CUDA_ERROR_INVALID_VALUE);
        node->dependencies.push_back(dependency.get());
    }
    for (const auto &dependency : dependencies)
        dependency->dependents.push_back(node.get());
    node->handle = graph_nodes().reserve();
    graph_nodes().put(node->handle, node);
    nodes.push_back(node);
    return node;
}

bool Graph::leads_to(const GraphNode &before, const GraphNode &after) {
    std::set<const GraphNode *> seen;
    std::deque<const GraphNode *> open{&after};
    while (!open.empty()) {
        const GraphNode *const node = open.front();
        open.pop_front();
        if (node == &before)
            return true;
        if (seen.insert(node).second)
            open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
    }
    return false;
}

CUresult Graph::connect(GraphNode &from, GraphNode &to) {
    if (std::ranges::contains(to.dependencies, &from) || leads_to(to, from))
        return CUDA_ERROR_INVALID_VALUE;
    to.dependencies.push_back(&from);
    from.dependents.push_back(&to);
    return CUDA_SUCCESS;
}

CUresult Graph::disconnect(GraphNode &from, GraphNode &to) {
    if (std::erase(to.dependencies, &from) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    std::erase(from.dependents, &to);
    return CUDA_SUCCESS;
}

void Graph::remove(GraphNode &node) {
    for (GraphNode *before : node.dependencies)
        std::erase(before->dependents, &node);
    for (GraphNode *after : node.dependents)
        std::erase(after->dependencies, &node);
    graph_nodes().take(node.handle);
    end_inner_graphs(node);
    twins.erase(node.original);
    std::erase_if(nodes, [&](const auto &one) { return one.get() == &node; });
}

std::shared_ptr<Graph> Graph::clone() const {
    auto copy = make_graph();
    std::map<const GraphNode *, std::shared_ptr<GraphNode>> copies;
    for (const auto &node : nodes) {
        auto twin = std::make_shared<GraphNode>();
        twin->graph = copy;
        twin->type = node->type;
        twin->operation = node->operation;
        twin->context = node->context;
        twin->original = node->handle;
        if (node->child != nullptr) {
            twin->child = node->child->clone();
            twin->child->embedded = true;
        }
        twin->handle = graph_nodes().reserve();
        graph_nodes().put(twin->handle, twin);
        copy->twins.emplace(node->handle, twin->handle);
        copies.emplace(node.get(), twin);
        copy->nodes.push_back(std::move(twin));
    }
    for (const auto &node : nodes) {
        for (const GraphNode *before : node->dependencies)
            copies[node.get()]->dependencies.push_back(copies[before].get());
        for (const GraphNode *after : node->dependents)
            copies[node.get()]->dependents.push_back(copies[after].get());
    }
    for (const auto &[handle_of, count] : references)
        if (const auto object = user_objects().find(handle_of)) {
            object->retain(count);
            copy->references[handle_of] += count;
        }
    return copy;
}

bool Graph::has_conditionals() const {
    return std::ranges::any_of(nodes, [](const auto &node) { return node->conditional != nullptr; });
}

std::vector<std::shared_ptr<GraphNode>> Graph::ordered() const {
    std::vector<std::shared_ptr<GraphNode>> out;
    std::map<const GraphNode *, std::size_t> missing;
    std::map<const GraphNode *, std::size_t> position;
    for (std::size_t at = 0; at < nodes.size(); ++at) {
        missing[nodes[at].get()] = nodes[at]->dependencies.size();
        position[nodes[at].get()] = at;
    }
    std::set<std::size_t> ready;
    for (std::size_t at = 0; at < nodes.size(); ++at)
        if (nodes[at]->dependencies.empty())
            ready.insert(at);
    while (!ready.empty()) {
        const std::size_t at = *ready.begin();
        ready.erase(ready.begin());
        out.push_back(nodes[at]);
        for (const GraphNode *after : nodes[at]->dependents)
            if (--missing[after] == 0)
                ready.insert(position[after]);
    }
    return out;
}

Result<std::vector<std::shared_ptr<GraphNode>>> nodes_of(const Graph &graph, const CUgraphNode *handles,
                                                         std::size_t count) {
    std::vector<std::shared_ptr<GraphNode>> out;
    if (count != 0 && handles == nullptr)
        return refused(CUDA_ERROR_INVALID_VALUE);
    for (std::size_t at = 0; at < count; ++at) {
        auto node = graph_nodes().find(handles[at]);
        if (node == nullptr || node->graph.lock().get() != &graph)
            return refused(CUDA_ERROR_INVALID_VALUE);
        out.push_back(std::move(node));
    }
    return out;
}

namespace {

// Appends the graph's nodes; `before` are what its roots come after. The indices of its last nodes.
std::vector<std::size_t> flatten_into(const Graph &graph, const std::vector<std::size_t> &before,
                                      std::vector<ExecutableNode> &out) {
    std::map<const GraphNode *, std::vector<std::size_t>> ends; // what comes after a node comes after these
    std::vector<std::size_t> last;
    for (const auto &node : graph.ordered()) {
        std::vector<std::size_t> dependencies;
        for (const GraphNode *dependency : node->dependencies)
            dependencies.insert(dependencies.end(), ends[dependency].begin(), ends[dependency].end());
        if (node->dependencies.empty())
            dependencies = before;
        std::ranges::sort(dependencies);
        if (node->child != nullptr) {
            ends[node.get()] = flatten_into(*node->child, dependencies, out);
            if (ends[node.get()].empty())
                ends[node.get()] = dependencies;
        } else {
            out.push_back({node->handle, node->type, node->operation, dependencies, true});
            for (const auto &body : node->bodies) {
                std::vector<ExecutableNode> inside;
                flatten_into(*body, {}, inside);
                out.back().bodies.push_back(std::move(inside));
            }
            ends[node.get()] = {out.size() - 1};
        }
        if (node->dependents.empty())
            last.insert(last.end(), ends[node.get()].begin(), ends[node.get()].end());
    }
    return last;
}

// Addresses that were given to allocation nodes.
struct GraphArea {
    std::weak_ptr<Mapping> mapping;
    GraphMemory memory;
};
struct GraphAreas {
    std::mutex mutex;
    std::map<std::uint64_t, GraphArea> all;

    // With the lock held.
    [[nodiscard]] GraphArea *at(std::uint64_t address) {
        const auto found = all.find(address);
        return found == all.end() || found->second.mapping.expired() ? nullptr : &found->second;
    }
};

GraphAreas &graph_areas() {
    static auto &areas = *new GraphAreas; // outlives every thread
    return areas;
}

// Gives a graph's memory back to the device's account at the end.
class GraphShare {
  public:
    GraphShare(Device &device, std::uint64_t size) : device_(device), size_(size) {
        auto &memory = device_.graph_memory();
        const std::uint64_t used = memory.used += size_;
        std::uint64_t high = memory.used_high;
        while (high < used && !memory.used_high.compare_exchange_weak(high, used)) {
        }
    }
    ~GraphShare() {
        device_.memory().give_back(size_);
        device_.graph_memory().used -= size_;
    }
    GraphShare(const GraphShare &) = delete;
    GraphShare &operator=(const GraphShare &) = delete;
    GraphShare(GraphShare &&) = delete;
    GraphShare &operator=(GraphShare &&) = delete;

  private:
    Device &device_;
    std::uint64_t size_;
};

} // namespace

std::vector<ExecutableNode> flatten(const Graph &graph) {
    std::vector<ExecutableNode> out;
    flatten_into(graph, {}, out);
    return out;
}

std::vector<std::shared_ptr<Conditional>> conditionals_of(const Graph &graph) {
    std::vector<std::shared_ptr<Conditional>> out;
    for (const auto &node : graph.nodes) {
        if (node->conditional != nullptr)
            out.push_back(node->conditional);
        for (const auto &body : node->bodies)
            std::ranges::move(conditionals_of(*body), std::back_inserter(out));
    }
    return out;
}

namespace {

ExecutableNode *find_in(std::vector<ExecutableNode> &nodes, CUgraphNode wanted) {
    for (ExecutableNode &node : nodes) {
        if (node.node == wanted)
            return &node;
        for (auto &body : node.bodies)
            if (auto *const inside = find_in(body, wanted); inside != nullptr)
                return inside;
    }
    return nullptr;
}

} // namespace

ExecutableNode *GraphExecutable::find(CUgraphNode node) { return find_in(nodes, node); }

Result<AllocationOperation> make_graph_allocation(CUDA_MEM_ALLOC_NODE_PARAMS &parameters) {
    if (parameters.bytesize == 0 || parameters.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return refused(CUDA_ERROR_INVALID_VALUE);
    if (const auto device = platform().device(parameters.poolProps.location.id); !device)
        return refused(CUDA_ERROR_INVALID_VALUE);
    // An address and pages that nobody has touched yet: the memory is counted when the node runs.
    auto mapping = map_device(round_up(parameters.bytesize, kGranularity), nullptr);
    if (!mapping)
        return refused(mapping.error());
    AllocationOperation operation;
    operation.address = (*mapping)->address();
    parameters.dptr = operation.address;
    operation.description = parameters;
    if (parameters.accessDescs != nullptr)
        operation.access.assign(parameters.accessDescs, parameters.accessDescs + parameters.accessDescCount);
    operation.description.accessDescs = nullptr;
    operation.description.accessDescCount = 0;
    operation.mapping = *std::move(mapping);
    const std::scoped_lock lock(graph_areas().mutex);
    std::erase_if(graph_areas().all, [](const auto &entry) { return entry.second.mapping.expired(); });
    graph_areas().all[operation.address] = {.mapping = operation.mapping, .memory = {}};
    return operation;
}

bool is_graph_memory(std::uint64_t address) {
    const std::scoped_lock lock(graph_areas().mutex);
    const auto after = graph_areas().all.upper_bound(address);
    if (after == graph_areas().all.begin())
        return false;
    const auto mapping = std::prev(after)->second.mapping.lock();
    return mapping != nullptr && address - mapping->address() < mapping->size();
}

CUresult allocate_for_graph(Context &context, const AllocationOperation &operation) {
    const auto device = platform().device(operation.description.poolProps.location.id);
    if (!device)
        return device.error();
    // By the launch itself, or by one before whose memory is freed automatically.
    if (memory_map().at(operation.address))
        return CUDA_SUCCESS;
    const std::uint64_t size = operation.mapping->size();
    if (!(*device)->memory().take(size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    Allocation allocation{};
    allocation.address = operation.address;
    allocation.size = operation.description.bytesize;
    allocation.kind = MemoryKind::pool;
    allocation.owner = context.id();
    allocation.context = context.handle();
    allocation.device = (*device)->ordinal();
    allocation.readable = allocation.writable = std::uint64_t{1} << (*device)->ordinal();
    for (const CUmemAccessDesc &access : operation.access)
        if (access.location.type == CU_MEM_LOCATION_TYPE_DEVICE && platform().device(access.location.id)) {
            const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(access.location.id);
            allocation.readable |= access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE ? bit : 0;
            allocation.writable |= access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? bit : 0;
        }
    allocation.mapping = operation.mapping;
    allocation.more = std::make_shared<GraphShare>(**device, size);
    memory_map().add(std::move(allocation));
    return CUDA_SUCCESS;
}

void free_of_graph(std::uint64_t address) {
    auto &areas = graph_areas();
    const std::scoped_lock lock(areas.mutex);
    if (const auto *const area = areas.at(address); area == nullptr || !area->memory.allocated)
        memory_map().remove(address);
}

CUresult launch_memory(Context &context, const std::vector<ExecutableNode> &nodes, bool again) {
    auto &areas = graph_areas();
    const std::scoped_lock lock(areas.mutex);
    std::vector<const AllocationOperation *> allocations;
    for (const ExecutableNode &node : nodes)
        if (const auto *const allocation = std::get_if<AllocationOperation>(&node.operation)) {
            const auto *const area = areas.at(allocation->address);
            if (!again && area != nullptr && area->memory.allocated)
                return CUDA_ERROR_INVALID_VALUE;
            allocations.push_back(allocation);
        }
    const auto freed_here = [&](std::uint64_t address) {
        return std::ranges::any_of(nodes, [&](const ExecutableNode &node) {
            const auto *const free = std::get_if<FreeOperation>(&node.operation);
            return free != nullptr && free->address == address;
        });
    };
    // What outlives the launch is there at once: calls may name it before the graph has run.
    for (const auto *const allocation : allocations)
        if (!freed_here(allocation->address))
            if (const CUresult result = allocate_for_graph(context, *allocation); result != CUDA_SUCCESS)
                return result;
    for (const auto *const allocation : allocations)
        if (auto *const area = areas.at(allocation->address); area != nullptr)
            area->memory = {.allocated = true, .context = context.handle()};
    for (const ExecutableNode &node : nodes)
        if (const auto *const free = std::get_if<FreeOperation>(&node.operation))
            if (auto *const area = areas.at(free->address); area != nullptr)
                area->memory.allocated = false;
    return CUDA_SUCCESS;
}

std::optional<GraphMemory> graph_memory_at(std::uint64_t address) {
    auto &areas = graph_areas();
    const std::scoped_lock lock(areas.mutex);
    const auto *const area = areas.at(address);
    return area == nullptr ? std::nullopt : std::optional(area->memory);
}

bool end_graph_memory(std::uint64_t address) {
    auto &areas = graph_areas();
    const std::scoped_lock lock(areas.mutex);
    auto *const area = areas.at(address);
    return area != nullptr && std::exchange(area->memory.allocated, false);
}

} // namespace singularity::softgpu::driver
