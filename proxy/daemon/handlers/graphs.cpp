// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs as a whole: instantiated, updated, printed.
#include "common/unique_fd.hpp"
#include "graph_parts.hpp"
#include "handlers.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::proxyd::handlers {

using driver_api::kHandleGraph;
using driver_api::kHandleGraphExec;
using driver_api::kHandleGraphNode;

CUresult handle(Call &call, const Request<protocol::InstantiateGraph> &request,
                Reply<protocol::InstantiateGraph> &reply) {
    const auto &fixed = request.fixed;
    const auto graph = call.object<CUgraph>(kHandleGraph, fixed.graph);
    const auto stream = call.stream(fixed.upload_stream);
    if (!graph || *graph == nullptr || !stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (call.driver().cuGraphInstantiateWithParams == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = fixed.flags;
    params.hUploadStream = *stream;
    CUgraphExec exec = nullptr;
    const auto result = call.driver().cuGraphInstantiateWithParams(&exec, *graph, &params);
    reply.fixed.outcome = static_cast<std::uint32_t>(params.result_out);
    reply.fixed.error_node =
        call.objects().name_of(kHandleGraphNode, std::bit_cast<std::uint64_t>(params.hErrNode_out));
    if (result == CUDA_SUCCESS)
        call.add(kHandleGraphExec, fixed.exec, exec);
    return result;
}

namespace {

std::uint64_t number(const void *handle) { return std::bit_cast<std::uint64_t>(handle); }

// Cuts a clone of a graph into its parts.
class Cutting {
  public:
    Cutting(const driver_api::Backend &driver, std::uint64_t flags, std::size_t parts)
        : driver_(driver), flags_(flags), made_(parts) {}

    struct Node {
        CUgraphNode node = nullptr; // of the graph that is cut
        std::size_t part = 0;
    };
    // Parts from `first` to before `end`, which are what the graph has; it is used up.
    [[nodiscard]] CUresult cut(CUgraph graph, std::vector<Node> nodes, std::size_t first, std::size_t end);
    [[nodiscard]] const std::vector<CUgraphExec> &made() const { return made_; }
    [[nodiscard]] CUgraphInstantiateResult outcome() const { return outcome_; }
    // All that was made goes again.
    void drop() {
        for (auto *const exec : made_)
            if (exec != nullptr)
                static_cast<void>(driver_.cuGraphExecDestroy(exec));
    }

  private:
    [[nodiscard]] CUresult instantiate(CUgraph graph, std::size_t part);

    const driver_api::Backend &driver_;
    std::uint64_t flags_;
    std::vector<CUgraphExec> made_;
    CUgraphInstantiateResult outcome_ = CUDA_GRAPH_INSTANTIATE_SUCCESS;
};

CUresult Cutting::instantiate(CUgraph graph, std::size_t part) {
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = flags_;
    const auto result = driver_.cuGraphInstantiateWithParams(&made_[part], graph, &params);
    outcome_ = params.result_out;
    return result;
}

// In halves: each node is copied as often as halves are halved, not for each part.
CUresult Cutting::cut(CUgraph graph, std::vector<Node> nodes, std::size_t first, std::size_t end) {
    if (nodes.empty())
        return CUDA_SUCCESS;
    if (end - first == 1)
        return instantiate(graph, first);
    const auto middle = first + (end - first) / 2;
    const auto is_later = [middle](const Node &one) { return one.part >= middle; };
    const auto later = std::ranges::count_if(nodes, is_later);
    if (later == 0)
        return cut(graph, std::move(nodes), first, middle);
    if (std::cmp_equal(later, nodes.size()))
        return cut(graph, std::move(nodes), middle, end);
    CUgraph other = nullptr;
    if (const auto bad = driver_.cuGraphClone(&other, graph); bad != CUDA_SUCCESS)
        return bad;
    std::vector<Node> others;
    auto result = CUDA_SUCCESS;
    // From the last on, of which some drivers take less time.
    for (auto one = nodes.rbegin(); one != nodes.rend() && result == CUDA_SUCCESS; ++one) {
        CUgraphNode copy = nullptr;
        result = driver_.cuGraphNodeFindInClone(&copy, one->node, other);
        if (result != CUDA_SUCCESS)
            break;
        if (is_later(*one))
            others.push_back({.node = copy, .part = one->part});
        result = driver_.cuGraphDestroyNode(is_later(*one) ? one->node : copy);
    }
    std::erase_if(nodes, is_later);
    std::ranges::reverse(others);
    if (result == CUDA_SUCCESS)
        result = cut(graph, std::move(nodes), first, middle);
    if (result == CUDA_SUCCESS)
        result = cut(other, std::move(others), middle, end);
    static_cast<void>(driver_.cuGraphDestroy(other));
    return result;
}

template <class Handle, class Ask>
CUresult list_of(std::vector<Handle> &out, Ask ask) {
    std::size_t count = 0;
    if (const auto bad = ask(nullptr, &count); bad != CUDA_SUCCESS)
        return bad;
    out.resize(count);
    const auto result = count == 0 ? CUDA_SUCCESS : ask(out.data(), &count);
    out.resize(std::min(count, out.size()));
    return result;
}

CUresult edges_of(const driver_api::Backend &driver, CUgraph graph, std::vector<GraphEdge> &out) {
    std::size_t count = 0;
    if (const auto bad = driver.cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count);
        bad != CUDA_SUCCESS)
        return bad;
    std::vector<CUgraphNode> from(count);
    std::vector<CUgraphNode> to(count);
    std::vector<CUgraphEdgeData> data(count);
    if (count != 0)
        if (const auto bad = driver.cuGraphGetEdges_v2(graph, from.data(), to.data(), data.data(), &count);
            bad != CUDA_SUCCESS)
            return bad;
    for (std::size_t index = 0; index < std::min(count, from.size()); ++index)
        out.emplace_back(number(from[index]), number(to[index]));
    return CUDA_SUCCESS;
}

} // namespace

CUresult handle(Call &call, const Request<protocol::InstantiateParts> &request,
                Reply<protocol::InstantiateParts> &reply) {
    const auto &driver = call.driver();
    const auto graph = call.object<CUgraph>(kHandleGraph, request.fixed.graph);
    if (!graph || *graph == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (driver.cuGraphInstantiateWithParams == nullptr || driver.cuGraphClone == nullptr ||
        driver.cuGraphGetNodes == nullptr || driver.cuGraphGetEdges_v2 == nullptr ||
        driver.cuGraphNodeFindInClone == nullptr || driver.cuGraphDestroyNode == nullptr ||
        driver.cuGraphDestroy == nullptr || driver.cuGraphExecDestroy == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    std::vector<std::uint64_t> collectives;
    for (std::size_t index = 0; index < protocol::element_count<std::uint64_t>(request.buffers[0]); ++index) {
        const auto node = call.object<CUgraphNode>(
            kHandleGraphNode, protocol::element<std::uint64_t>(request.buffers[0], index));
        if (!node || *node == nullptr)
            return CUDA_ERROR_INVALID_HANDLE;
        collectives.push_back(number(*node));
    }
    std::vector<CUgraphNode> all;
    if (const auto bad =
            list_of(all, [&](CUgraphNode *out,
                             std::size_t *count) { return driver.cuGraphGetNodes(*graph, out, count); });
        bad != CUDA_SUCCESS)
        return bad;
    std::vector<std::uint64_t> nodes;
    for (const auto *node : all)
        nodes.push_back(number(node));
    std::vector<GraphEdge> edges;
    if (const auto bad = edges_of(driver, *graph, edges); bad != CUDA_SUCCESS)
        return bad;
    const auto parts = parts_of(nodes, edges, collectives);
    if (!parts) {
        reply.fixed.wrong_order = 1;
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUgraph clone = nullptr;
    if (const auto bad = driver.cuGraphClone(&clone, *graph); bad != CUDA_SUCCESS)
        return bad;
    Cutting cutting(driver, request.fixed.flags, parts->size());
    std::vector<Cutting::Node> copies;
    auto result = CUDA_SUCCESS;
    const auto find = [&](std::uint64_t node, CUgraphNode &copy) {
        result = driver.cuGraphNodeFindInClone(&copy, std::bit_cast<CUgraphNode>(node), clone);
        return result == CUDA_SUCCESS;
    };
    for (std::size_t part = 0; part < parts->size(); ++part)
        for (const auto node : (*parts)[part].nodes)
            if (CUgraphNode copy = nullptr; result == CUDA_SUCCESS && find(node, copy))
                copies.push_back({.node = copy, .part = part});
    for (const auto node : collectives)
        if (CUgraphNode copy = nullptr; result == CUDA_SUCCESS && find(node, copy))
            result = driver.cuGraphDestroyNode(copy);
    if (result == CUDA_SUCCESS)
        result = cutting.cut(clone, std::move(copies), 0, parts->size());
    static_cast<void>(driver.cuGraphDestroy(clone));
    reply.fixed.outcome = static_cast<std::uint32_t>(cutting.outcome());
    if (result != CUDA_SUCCESS) {
        cutting.drop();
        return result;
    }
    const auto told = call.elements<protocol::PartOfGraph>(parts->size());
    for (std::size_t part = 0; part < parts->size(); ++part) {
        told[part] = {.nodes = (*parts)[part].nodes.size(), .after = (*parts)[part].after};
        if (auto *const exec = cutting.made()[part]; exec != nullptr)
            call.add(kHandleGraphExec, protocol::element<std::uint64_t>(request.buffers[1], part), exec);
    }
    reply.buffers[0] = protocol::view_of_elements(std::span<const protocol::PartOfGraph>(told));
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::UpdateGraphExec> &request,
                Reply<protocol::UpdateGraphExec> &reply) {
    const auto graph = call.object<CUgraph>(kHandleGraph, request.fixed.graph);
    const auto exec = call.object<CUgraphExec>(kHandleGraphExec, request.fixed.exec);
    if (!graph || *graph == nullptr || !exec || *exec == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (call.driver().cuGraphExecUpdate_v2 == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUgraphExecUpdateResultInfo info{};
    const auto result = call.driver().cuGraphExecUpdate_v2(*exec, *graph, &info);
    auto &objects = call.objects();
    reply.fixed.outcome = static_cast<std::uint32_t>(info.result);
    const ObjectTable::Origin origin(call.header().context, request.fixed.graph);
    reply.fixed.error_node = objects.name_of(kHandleGraphNode, std::bit_cast<std::uint64_t>(info.errorNode));
    reply.fixed.error_from_node =
        objects.name_of(kHandleGraphNode, std::bit_cast<std::uint64_t>(info.errorFromNode));
    return result;
}

CUresult handle(Call &call, const Request<protocol::PrintGraph> &request,
                Reply<protocol::PrintGraph> &reply) {
    const auto graph = call.object<CUgraph>(kHandleGraph, request.fixed.graph);
    if (!graph || *graph == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (call.driver().cuGraphDebugDotPrint == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    // The driver writes to a path; this one is nobody else's.
    const UniqueFd file(memfd_create("graph", MFD_CLOEXEC));
    if (!file)
        return CUDA_ERROR_OPERATING_SYSTEM;
    const auto path = fmt::format("/proc/self/fd/{}", file.get());
    if (const auto result = call.driver().cuGraphDebugDotPrint(*graph, path.c_str(), request.fixed.flags);
        result != CUDA_SUCCESS)
        return result;
    struct stat about{};
    if (fstat(file.get(), &about) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    const auto size = static_cast<std::size_t>(about.st_size);
    if (size > protocol::kReadPiece)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const auto text = call.storage(size);
    if (!std::cmp_equal(pread(file.get(), text.data(), size, 0), size))
        return CUDA_ERROR_OPERATING_SYSTEM;
    reply.buffers[0] = {.bytes = text, .present = true};
    return CUDA_SUCCESS;
}

} // namespace singularity::proxyd::handlers
