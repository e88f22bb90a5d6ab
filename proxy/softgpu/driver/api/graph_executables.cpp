// SPDX-License-Identifier: GPL-2.0-or-later
// Executable graphs: making, changing and launching them.
#include "driver/api/entry.hpp"
#include "driver/capture.hpp"
#include "driver/graph.hpp"
#include "driver/module.hpp"
#include "driver/node_plan.hpp"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

namespace singularity::softgpu::driver {

namespace {

constexpr unsigned long long kInstantiateFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

template <class Work>
CUresult with_executable(CUgraphExec handle, Work &&work) {
    return with_driver([&] {
        const auto executable = graph_executables().find(handle);
        if (executable == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        const std::scoped_lock lock(graph_mutex());
        return std::forward<Work>(work)(*executable);
    });
}

CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags) {
    return with_driver([&] {
        const auto graph = graphs().find(handle);
        if (out == nullptr || graph == nullptr || (flags & ~kInstantiateFlags) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
            return CUDA_ERROR_NOT_SUPPORTED;
        auto executable = std::make_shared<GraphExecutable>();
        const std::scoped_lock lock(graph_mutex());
        executable->graph = handle;
        executable->flags = flags;
        executable->nodes = flatten(*graph);
        executable->conditionals = conditionals_of(*graph);
        for (const auto &[object_handle, count] : graph->references)
            if (const auto object = user_objects().find(object_handle)) {
                object->retain(count);
                executable->references[object_handle] += count;
            }
        executable->handle = graph_executables().reserve();
        graph_executables().put(executable->handle, executable);
        *out = executable->handle;
        return CUDA_SUCCESS;
    });
}

CUresult instantiate_with_log(CUgraphExec *out, CUgraph graph, CUgraphNode *wrong, char *log,
                              std::size_t room) {
    if (wrong != nullptr)
        *wrong = nullptr;
    if (log != nullptr && room != 0)
        *log = '\0';
    return instantiate(out, graph, 0);
}

CUresult upload(CUgraphExec handle, CUstream stream) {
    return with_stream(stream, [&](Context &, Stream &) {
        return graph_executables().find(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    });
}

CUresult instantiate_with(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    if (parameters == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    parameters->hErrNode_out = nullptr;
    const CUresult made = instantiate(out, graph, parameters->flags);
    parameters->result_out =
        made == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return made;
}

std::shared_ptr<OperationList> operations_of(const std::vector<ExecutableNode> &nodes) {
    auto list = std::make_shared<OperationList>();
    for (const ExecutableNode &node : nodes) {
        if (!node.enabled || std::holds_alternative<EmptyOperation>(node.operation))
            continue;
        list->operations.push_back(node.operation);
        if (auto *const conditional = std::get_if<ConditionalOperation>(&list->operations.back()))
            for (const auto &body : node.bodies)
                conditional->bodies.push_back(operations_of(body));
    }
    return list;
}

// The operations as they are now; kept until one is changed.
std::shared_ptr<const OperationList> list_of(GraphExecutable &executable) {
    if (executable.list == nullptr) {
        auto list = operations_of(executable.nodes);
        for (const auto &conditional : executable.conditionals)
            list->conditionals.emplace_back(conditional->number(), conditional->default_value());
        executable.list = std::move(list);
    }
    return executable.list;
}

// A launch into a captured stream: the graph becomes a child of the one that is made.
std::optional<CUresult> capture_launch(Stream &stream, const GraphExecutable &executable) {
    const std::scoped_lock lock(graph_mutex());
    if (stream.capture == nullptr)
        return std::nullopt;
    auto &state = *stream.capture;
    if (state.session->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!executable.conditionals.empty())
        return CUDA_ERROR_NOT_SUPPORTED; // it would be a child
    const auto child = make_graph();
    child->embedded = true;
    std::vector<std::shared_ptr<GraphNode>> made;
    for (const ExecutableNode &one : executable.nodes) {
        std::vector<std::shared_ptr<GraphNode>> dependencies;
        for (const std::size_t before : one.dependencies)
            dependencies.push_back(made[before]);
        auto node = child->add(one.type, one.enabled ? one.operation : Operation{}, dependencies);
        if (!node)
            return node.error();
        made.push_back(*std::move(node));
    }
    auto node = state.session->graph->add(CU_GRAPH_NODE_TYPE_GRAPH, EmptyOperation{}, state.dependencies);
    if (!node)
        return node.error();
    (*node)->child = child;
    state.dependencies = {*std::move(node)};
    return CUDA_SUCCESS;
}

CUresult launch(Context &context, Stream &stream, CUgraphExec handle) {
    const auto executable = graph_executables().find(handle);
    if (executable == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (const auto captured = capture_launch(stream, *executable))
        return *captured;
    if (const auto captured = capture(context, stream, EmptyOperation{}, true))
        return *captured; // the legacy stream while another one is captured
    const std::scoped_lock lock(graph_mutex());
    const bool again = (executable->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    if (const CUresult memory = launch_memory(context, executable->nodes, again); memory != CUDA_SUCCESS)
        return memory;
    Submission how;
    if (executable->last_launch != nullptr)
        how.after.push_back(executable->last_launch);
    executable->last_launch = submit(stream, ListOperation{list_of(*executable)}, std::move(how));
    return CUDA_SUCCESS;
}

CUgraphExecUpdateResult compare(const ExecutableNode &old, const ExecutableNode &now) {
    if (old.type != now.type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (old.dependencies != now.dependencies)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    const auto *const kernel = std::get_if<KernelOperation>(&old.operation);
    const auto *const other = std::get_if<KernelOperation>(&now.operation);
    if (kernel != nullptr && other != nullptr && &kernel->function->context() != &other->function->context())
        return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    const auto *const allocation = std::get_if<AllocationOperation>(&old.operation);
    const auto *const replaced = std::get_if<AllocationOperation>(&now.operation);
    if (allocation != nullptr && replaced != nullptr && allocation->address != replaced->address)
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    const auto *const conditional = std::get_if<ConditionalOperation>(&old.operation);
    const auto *const wanted = std::get_if<ConditionalOperation>(&now.operation);
    if (conditional != nullptr && wanted != nullptr &&
        (conditional->handle != wanted->handle || conditional->type != wanted->type))
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// The first node that cannot become the one in its place, or what is wrong with all of them.
CUgraphExecUpdateResult compare(const std::vector<ExecutableNode> &old,
                                const std::vector<ExecutableNode> &now, CUgraphNode &wrong) {
    if (old.size() != now.size())
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (std::size_t at = 0; at < old.size(); ++at) {
        auto result = compare(old[at], now[at]);
        if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS && old[at].bodies.size() != now[at].bodies.size())
            result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
            wrong = now[at].node;
            return result;
        }
        for (std::size_t body = 0; body < old[at].bodies.size(); ++body)
            if (result = compare(old[at].bodies[body], now[at].bodies[body], wrong);
                result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
                return result;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

void take_operations(std::vector<ExecutableNode> &to, std::vector<ExecutableNode> &from) {
    for (std::size_t at = 0; at < to.size(); ++at) {
        to[at].operation = std::move(from[at].operation);
        for (std::size_t body = 0; body < to[at].bodies.size(); ++body)
            take_operations(to[at].bodies[body], from[at].bodies[body]);
    }
}

CUresult replace(GraphExecutable &executable, std::vector<ExecutableNode> nodes,
                 CUgraphExecUpdateResultInfo &info) {
    info = {CU_GRAPH_EXEC_UPDATE_SUCCESS, nullptr, nullptr};
    info.result = compare(executable.nodes, nodes, info.errorNode);
    if (info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    take_operations(executable.nodes, nodes);
    executable.list.reset();
    return CUDA_SUCCESS;
}

CUresult update(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo &info) {
    return with_executable(handle, [&](GraphExecutable &executable) {
        const auto graph = graphs().find(graph_handle);
        if (graph == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        return replace(executable, flatten(*graph), info);
    });
}

// The nodes of an embedded graph are in the executable one after the other.
CUresult replace_child(GraphExecutable &executable, CUgraphNode handle, CUgraph graph_handle) {
    const auto node = graph_nodes().find(handle);
    const auto graph = graphs().find(graph_handle);
    if (node == nullptr || node->child == nullptr || graph == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto old = flatten(*node->child);
    auto now = flatten(*graph);
    if (old.size() != now.size())
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t at = 0; at < old.size(); ++at)
        if (old[at].type != now[at].type || old[at].dependencies != now[at].dependencies ||
            executable.find(old[at].node) == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t at = 0; at < old.size(); ++at)
        executable.find(old[at].node)->operation = std::move(now[at].operation);
    executable.list.reset();
    return CUDA_SUCCESS;
}

bool can_be_disabled(const ExecutableNode &node) {
    return node.type == CU_GRAPH_NODE_TYPE_KERNEL || node.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           node.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult enable(GraphExecutable &executable, CUgraphNode handle, bool enabled) {
    ExecutableNode *const node = executable.find(handle);
    if (node == nullptr || !can_be_disabled(*node))
        return CUDA_ERROR_INVALID_VALUE;
    node->enabled = enabled;
    executable.list.reset();
    return CUDA_SUCCESS;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize) {
    return instantiate_with_log(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize) {
    return instantiate_with_log(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags) {
    return instantiate(phGraphExec, hGraph, flags);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    return instantiate_with(phGraphExec, hGraph, instantiateParams);
}
CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags) {
    return with_executable(hGraphExec, [&](GraphExecutable &executable) {
        if (flags == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *flags = executable.flags;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph) {
    return with_executable(hGraphExec, [&](GraphExecutable &executable) {
        return replace_child(executable, hNode, childGraph);
    });
}
CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out) {
    CUgraphExecUpdateResultInfo info{};
    const CUresult result = update(hGraphExec, hGraph, info);
    if (hErrorNode_out != nullptr)
        *hErrorNode_out = info.errorNode;
    if (updateResult_out != nullptr)
        *updateResult_out = info.result;
    return result;
}
CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo *resultInfo) {
    if (const CUresult ready = initialized(); ready != CUDA_SUCCESS)
        return ready;
    return resultInfo == nullptr ? CUDA_ERROR_INVALID_VALUE : update(hGraphExec, hGraph, *resultInfo);
}
CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
    return with_executable(
        hGraphExec, [&](GraphExecutable &executable) { return enable(executable, hNode, isEnabled != 0); });
}
CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled) {
    return with_executable(hGraphExec, [&](GraphExecutable &executable) {
        const ExecutableNode *const node = executable.find(hNode);
        if (node == nullptr || isEnabled == nullptr || !can_be_disabled(*node))
            return CUDA_ERROR_INVALID_VALUE;
        *isEnabled = node->enabled ? 1 : 0;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) { return upload(hGraph, hStream); }
CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
    return with_stream(hStream,
                       [&](Context &context, Stream &stream) { return launch(context, stream, hGraph); });
}
CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    return with_driver([&] {
        return graph_executables().take(hGraphExec) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    });
}

} // extern "C"
