// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs as a whole: instantiated, updated, printed.
#include "common/unique_fd.hpp"
#include "handlers.hpp"

#include <algorithm>
#include <bit>
#include <set>
#include <string>
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

// Of a clone: what is not kept of the original goes.
CUresult cut_to(const driver_api::Backend &driver, CUgraph graph, CUgraph clone,
                const std::set<CUgraphNode> &kept) {
    std::size_t count = 0;
    if (const auto bad = driver.cuGraphGetNodes(graph, nullptr, &count); bad != CUDA_SUCCESS)
        return bad;
    std::vector<CUgraphNode> nodes(count);
    if (const auto bad = driver.cuGraphGetNodes(graph, nodes.data(), &count); bad != CUDA_SUCCESS)
        return bad;
    nodes.resize(std::min(count, nodes.size()));
    for (auto *const node : nodes) {
        if (kept.contains(node))
            continue;
        CUgraphNode copy = nullptr;
        if (const auto bad = driver.cuGraphNodeFindInClone(&copy, node, clone); bad != CUDA_SUCCESS)
            return bad;
        if (const auto bad = driver.cuGraphDestroyNode(copy); bad != CUDA_SUCCESS)
            return bad;
    }
    return CUDA_SUCCESS;
}

} // namespace

CUresult handle(Call &call, const Request<protocol::InstantiatePart> &request,
                Reply<protocol::InstantiatePart> &reply) {
    const auto &driver = call.driver();
    const auto graph = call.object<CUgraph>(kHandleGraph, request.fixed.graph);
    if (!graph || *graph == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (driver.cuGraphInstantiateWithParams == nullptr || driver.cuGraphClone == nullptr ||
        driver.cuGraphGetNodes == nullptr || driver.cuGraphNodeFindInClone == nullptr ||
        driver.cuGraphDestroyNode == nullptr || driver.cuGraphDestroy == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    std::set<CUgraphNode> kept;
    for (std::size_t index = 0; index < protocol::element_count<std::uint64_t>(request.buffers[0]); ++index) {
        const auto node = call.object<CUgraphNode>(
            kHandleGraphNode, protocol::element<std::uint64_t>(request.buffers[0], index));
        if (!node || *node == nullptr)
            return CUDA_ERROR_INVALID_HANDLE;
        kept.insert(*node);
    }
    CUgraph clone = nullptr;
    if (const auto bad = driver.cuGraphClone(&clone, *graph); bad != CUDA_SUCCESS)
        return bad;
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = request.fixed.flags;
    CUgraphExec exec = nullptr;
    auto result = cut_to(driver, *graph, clone, kept);
    if (result == CUDA_SUCCESS) {
        result = driver.cuGraphInstantiateWithParams(&exec, clone, &params);
        reply.fixed.outcome = static_cast<std::uint32_t>(params.result_out);
    }
    static_cast<void>(driver.cuGraphDestroy(clone));
    if (result == CUDA_SUCCESS)
        call.add(kHandleGraphExec, request.fixed.exec, exec);
    return result;
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
