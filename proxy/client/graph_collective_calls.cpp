// SPDX-License-Identifier: GPL-2.0-or-later
// What graphs with collectives make of calls that are forwarded otherwise.
#include "graph.hpp"
#include "graph_collectives.hpp"
#include "graph_memory.hpp"
#include "objects.hpp"
#include "process.hpp"

using namespace singularity;
using namespace singularity::client;

namespace {

std::uint64_t handle_of(const void *handle) { return std::bit_cast<std::uint64_t>(handle); }

// The three older calls say the same as the newest one.
CUresult instantiate_as_newest(CUgraphExec *out, CUgraph graph, std::uint64_t flags,
                               CUgraphNode *error_node) {
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = flags;
    const auto result = cuGraphInstantiateWithParams(out, graph, &params);
    if (error_node != nullptr)
        *error_node = params.hErrNode_out;
    return result;
}

} // namespace

extern "C" {

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize) {
    return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize) {
    if (logBuffer != nullptr && bufferSize != 0)
        logBuffer[0] = '\0';
    return instantiate_as_newest(phGraphExec, hGraph, 0, phErrorNode);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags) {
    return instantiate_as_newest(phGraphExec, hGraph, flags, nullptr);
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (updateResult_out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExecUpdateResultInfo info{};
    const auto result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
    *updateResult_out = info.result;
    if (hErrorNode_out != nullptr)
        *hErrorNode_out = info.errorNode;
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    if (const auto parted = remove_parted(hGraphExec); parted != nullptr) {
        parted->end();
        release_user_objects(handle_of(hGraphExec));
        forget_graph(handle_of(hGraphExec));
        return CUDA_SUCCESS;
    }
    auto request = driver_api::GraphExecDestroyCall::request(ApiId::kGraphExecDestroy, hGraphExec);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleGraphExec, request->hGraphExec); bad != CUDA_SUCCESS)
        return bad;
    const auto result = send_sync(
        *request,
        [&](std::span<const std::byte> bytes) {
            return driver_api::decode_GraphExecDestroyReply(*request, bytes);
        },
        [](const auto & /*reply*/) {});
    if (result == CUDA_SUCCESS)
        gone(driver_api::kHandleGraphExec, request->hGraphExec);
    return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags) {
    if (const auto parted = parted_graph(hGraphExec); parted != nullptr) {
        if (flags == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *flags = parted->flags();
        return CUDA_SUCCESS;
    }
    auto request = driver_api::GraphExecGetFlagsCall::request(ApiId::kGraphExecGetFlags, hGraphExec, flags);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleGraphExec, request->hGraphExec); bad != CUDA_SUCCESS)
        return bad;
    return send_sync(
        *request,
        [&](std::span<const std::byte> bytes) {
            return driver_api::decode_GraphExecGetFlagsReply(*request, bytes);
        },
        [&](const auto &reply) { driver_api::GraphExecGetFlagsCall::finish(*request, reply, flags); });
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
    if (const auto parted = parted_graph(hGraphExec); parted != nullptr)
        return parted->upload(hStream);
    auto request = driver_api::GraphUploadCall::request(ApiId::kGraphUpload, hGraphExec, hStream);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleGraphExec, request->hGraph); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = check_handle(driver_api::kHandleStream, request->hStream); bad != CUDA_SUCCESS)
        return bad;
    return send_async(*request);
}

CUresult cuGraphDestroy(CUgraph hGraph) {
    auto request = driver_api::GraphDestroyCall::request(ApiId::kGraphDestroy, hGraph);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleGraph, request->hGraph); bad != CUDA_SUCCESS)
        return bad;
    const auto result = send_sync(
        *request,
        [&](std::span<const std::byte> bytes) {
            return driver_api::decode_GraphDestroyReply(*request, bytes);
        },
        [](const auto & /*reply*/) {});
    if (result == CUDA_SUCCESS) {
        gone(driver_api::kHandleGraph, request->hGraph);
        forget_collectives(request->hGraph);
    }
    return result;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph) {
    const auto handle = new_handle(driver_api::kHandleGraph);
    auto request =
        driver_api::GraphCloneCall::request(ApiId::kGraphClone, handle, phGraphClone, originalGraph);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleGraph, request->originalGraph); bad != CUDA_SUCCESS)
        return bad;
    const auto result = send_sync(
        *request,
        [&](std::span<const std::byte> bytes) { return driver_api::decode_GraphCloneReply(*request, bytes); },
        [&](const auto &reply) { driver_api::GraphCloneCall::finish(*request, reply, phGraphClone); });
    if (result != CUDA_SUCCESS)
        return result;
    made(driver_api::kHandleGraph, handle, ApiId::kGraphClone, &*request);
    if (const auto bad = clone_collectives(originalGraph, *phGraphClone); bad != CUDA_SUCCESS) {
        static_cast<void>(cuGraphDestroy(*phGraphClone));
        return bad;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, CUgraph childGraph) {
    if (const auto bad = allowed_within(handle_of(childGraph)); bad != CUDA_SUCCESS)
        return bad;
    const auto handle = new_handle(driver_api::kHandleGraphNode);
    auto request =
        driver_api::GraphAddChildGraphNodeCall::request(ApiId::kGraphAddChildGraphNode, handle, phGraphNode,
                                                        hGraph, dependencies, numDependencies, childGraph);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleGraph, request->hGraph); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = check_handle(driver_api::kHandleGraph, request->childGraph); bad != CUDA_SUCCESS)
        return bad;
    const auto result = send_sync(
        *request,
        [&](std::span<const std::byte> bytes) {
            return driver_api::decode_GraphAddChildGraphNodeReply(*request, bytes);
        },
        [&](const auto &reply) {
            driver_api::GraphAddChildGraphNodeCall::finish(*request, reply, phGraphNode);
        });
    if (result == CUDA_SUCCESS)
        made(driver_api::kHandleGraphNode, handle, ApiId::kGraphAddChildGraphNode, &*request);
    return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph) {
    if (const auto bad = allowed_within(handle_of(childGraph)); bad != CUDA_SUCCESS)
        return bad;
    auto request = driver_api::GraphExecChildGraphNodeSetParamsCall::request(
        ApiId::kGraphExecChildGraphNodeSetParams, hGraphExec, hNode, childGraph);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleGraphExec, request->hGraphExec); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = check_handle(driver_api::kHandleGraphNode, request->hNode); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = check_handle(driver_api::kHandleGraph, request->childGraph); bad != CUDA_SUCCESS)
        return bad;
    return send_sync(
        *request,
        [&](std::span<const std::byte> bytes) {
            return driver_api::decode_GraphExecChildGraphNodeSetParamsReply(*request, bytes);
        },
        [](const auto & /*reply*/) {});
}

} // extern "C"
