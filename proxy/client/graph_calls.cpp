// SPDX-License-Identifier: GPL-2.0-or-later
// Whole graphs: instantiation, update, printing; stream capture; user objects.
#include "attachment.hpp"
#include "capture_modes.hpp"
#include "common/thread_owned.hpp"
#include "copy.hpp"
#include "graph.hpp"
#include "graph_collectives.hpp"
#include "graph_memory.hpp"
#include "log.hpp"
#include "proxy/libcuda/entry.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <vector>

using namespace singularity;
using namespace singularity::client;

namespace {

std::uint64_t word_of(const void *handle) { return std::bit_cast<std::uint64_t>(handle); }

// What cuStreamGetCaptureInfo has pointed the program to: valid until this thread asks again.
struct CaptureLists {
    std::vector<CUgraphNode> nodes;
    std::vector<CUgraphEdgeData> edges;
};

CaptureLists &capture_lists() { return ThreadOwned<CaptureLists>::mine(); }

struct CaptureOutputs {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **nodes;
    const CUgraphEdgeData **edges;
    size_t *count;
};

CUresult capture_info(CUstream stream, const CaptureOutputs &out) {
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(stream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    if (out.status == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    auto &lists = capture_lists();
    bool lossy = false;
    const auto result =
        ask(route, protocol::Message<protocol::CaptureInfo>{.fixed = {.stream = wire}}, kMostCaptureBytes,
            [&](const auto &reply) {
                *out.status = static_cast<CUstreamCaptureStatus>(reply.fixed.status);
                if (reply.fixed.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
                    return;
                lists.nodes.clear();
                lists.edges.clear();
                const auto &[nodes, edges] = reply.buffers;
                for (std::size_t index = 0; index < protocol::element_count<CUgraphNode>(nodes); ++index)
                    lists.nodes.push_back(protocol::element<CUgraphNode>(nodes, index));
                for (std::size_t index = 0; index < protocol::element_count<CUgraphEdgeData>(edges); ++index)
                    lists.edges.push_back(protocol::element<CUgraphEdgeData>(edges, index));
                lossy =
                    out.edges == nullptr && std::ranges::any_of(lists.edges, [](const CUgraphEdgeData &edge) {
                        return edge.type != 0 || edge.from_port != 0 || edge.to_port != 0;
                    });
                if (out.id != nullptr)
                    *out.id = reply.fixed.id;
                if (out.graph != nullptr)
                    *out.graph = std::bit_cast<CUgraph>(reply.fixed.graph);
                if (out.nodes != nullptr)
                    *out.nodes = lists.nodes.data();
                if (out.edges != nullptr)
                    *out.edges = lists.edges.empty() ? nullptr : lists.edges.data();
                if (out.count != nullptr)
                    *out.count = lists.nodes.size();
            });
    return result == CUDA_SUCCESS && lossy ? CUDA_ERROR_LOSSY_QUERY : result;
}

CUresult launch(CUgraphExec executable, CUstream stream) {
    auto request = driver_api::GraphLaunchCall::request(ApiId::kGraphLaunch, executable, stream);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleGraphExec, request->hGraph); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = check_handle(driver_api::kHandleStream, request->hStream); bad != CUDA_SUCCESS)
        return bad;
    return send_async(*request);
}

// Where a launch would go. In a capture nothing is launched yet.
CUresult launch_route(CUstream stream, std::uint64_t &wire, Route &route, bool &capturing) {
    const auto bad = stream_route(stream, wire, route);
    return bad != CUDA_SUCCESS ? bad : is_capturing(route, wire, capturing);
}

CUresult instantiate_parted(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS &params) {
    params.hErrNode_out = nullptr;
    params.result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    std::uint64_t handle = 0;
    if (const auto bad = add_parted(graph, params.flags, handle); bad != CUDA_SUCCESS)
        return bad;
    params.result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    share_user_objects(word_of(graph), handle);
    share_graph_memory(word_of(graph), handle, params.flags);
    *out = std::bit_cast<CUgraphExec>(handle);
    return CUDA_SUCCESS;
}

// graph: with collectives, or executable is. nullptr: executable has none.
CUresult update_parted(PartedGraph *executable, CUgraphExec handle, CUgraph graph,
                       CUgraphExecUpdateResultInfo &info) {
    info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR, .errorNode = nullptr, .errorFromNode = nullptr};
    bool changed = executable == nullptr || !has_collectives(word_of(graph));
    if (const auto bad = changed ? CUDA_SUCCESS : executable->update(graph, changed); bad != CUDA_SUCCESS)
        return bad;
    info.result = changed ? CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED : CU_GRAPH_EXEC_UPDATE_SUCCESS;
    if (changed)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    update_graph_memory(word_of(graph), word_of(handle));
    return CUDA_SUCCESS;
}

CUresult launch_parted(PartedGraph &graph, CUstream stream) {
    std::uint64_t wire = 0;
    Route route;
    bool capturing = false;
    if (const auto bad = launch_route(stream, wire, route, capturing); bad != CUDA_SUCCESS)
        return bad;
    if (capturing) {
        kLog.warning("a launch of a graph with collectives cannot be captured: capture what the graph does");
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return graph.launch(stream);
}

CUresult launch_memory(CUgraphExec executable, CUstream stream) {
    std::uint64_t wire = 0;
    Route route;
    bool capturing = false;
    if (const auto bad = launch_route(stream, wire, route, capturing); bad != CUDA_SUCCESS)
        return bad;
    return capturing ? CUDA_SUCCESS : launch_graph_memory(word_of(executable));
}

// Behind the launch on its stream.
void launch_apart_ended(void *context) { end_launch_apart(*static_cast<Context *>(context)); }

// See attachment.hpp.
CUresult launch_apart(CUgraphExec executable, CUstream stream) {
    std::uint64_t wire = 0;
    Route route;
    bool capturing = false;
    if (const auto bad = launch_route(stream, wire, route, capturing); bad != CUDA_SUCCESS)
        return bad;
    if (capturing)
        return launch(executable, stream);
    begin_launch_apart(*route.context);
    auto result = launch(executable, stream);
    if (result == CUDA_SUCCESS)
        result = launch_host_function(route, wire, launch_apart_ended, route.context);
    if (result != CUDA_SUCCESS)
        end_launch_apart(*route.context);
    return result;
}

template <class Request, class Decode>
CUresult begin(std::expected<Request, Error> &request, CUstreamCaptureMode mode, Decode decode) {
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleStream, request->hStream); bad != CUDA_SUCCESS)
        return bad;
    if constexpr (requires { request->hGraph; })
        if (const auto bad = check_handle(driver_api::kHandleGraph, request->hGraph); bad != CUDA_SUCCESS)
            return bad;
    const auto result = send_sync(*request, decode, [](const auto & /*reply*/) {});
    if (result == CUDA_SUCCESS)
        capture_began(last_route(), request->hStream, mode);
    return result;
}

// --- User objects: counted here; the destructor runs when nobody holds one any more.

struct UserObject : Object {
    void *data = nullptr;
    CUhostFn destroy = nullptr;
    std::uint64_t count = 0;
};

struct UserObjects {
    std::mutex lock;
    std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>> held; // by graph: references by object
};

UserObjects &user_objects() {
    static auto &instance = *std::make_unique<UserObjects>().release(); // see process()
    return instance;
}

// With the lock held: takes references away; true if it was the last.
bool drop(std::uint64_t handle, std::uint64_t count) {
    auto *const object = find_as<UserObject>(driver_api::kHandleUserObject, handle);
    if (object == nullptr)
        return false;
    object->count -= std::min(object->count, count);
    return object->count == 0;
}

void destroy_object(std::uint64_t handle) {
    const auto object = process().table(driver_api::kHandleUserObject).remove(handle);
    if (object == nullptr)
        return;
    const auto &user = static_cast<const UserObject &>(*object);
    user.destroy(user.data);
}

void hold_same(std::uint64_t from, std::uint64_t to) {
    auto &all = user_objects();
    const std::scoped_lock lock(all.lock);
    const auto found = all.held.find(from);
    if (found == all.held.end())
        return;
    const auto references = found->second;
    for (const auto &[handle, count] : references)
        if (auto *object = find_as<UserObject>(driver_api::kHandleUserObject, handle); object != nullptr)
            object->count += count;
    all.held[to] = references;
}

// Copies from and to the program's memory are two nodes in the daemon and one for the program: what the
// daemon lists is told as the program knows it. `list`: of so many entries all nodes; nullptr: only count.
template <class Ask>
CUresult list_nodes(CUgraphNode *out, size_t *count, Ask ask_daemon) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (count == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    size_t all = 0;
    if (const auto bad = ask_daemon(nullptr, &all); bad != CUDA_SUCCESS)
        return bad;
    std::vector<CUgraphNode> nodes(all);
    if (all != 0)
        if (const auto bad = ask_daemon(nodes.data(), &all); bad != CUDA_SUCCESS)
            return bad;
    nodes.resize(std::min(all, nodes.size()));
    std::vector<CUgraphNode> shown;
    for (const auto node : nodes) {
        const auto *const object = node_object(node);
        const auto known =
            object != nullptr && object->shown_as != 0 ? std::bit_cast<CUgraphNode>(object->shown_as) : node;
        if (std::ranges::find(shown, known) == shown.end())
            shown.push_back(known);
    }
    const auto room = out == nullptr ? 0 : *count;
    for (size_t index = 0; index < room; ++index)
        out[index] = index < shown.size() ? shown[index] : nullptr;
    *count = out == nullptr ? shown.size() : std::min(room, shown.size());
    return CUDA_SUCCESS;
}

} // namespace

namespace singularity::client {

// What the program was told of the capture stays as it is.
std::uint64_t captured_graph(CUstream stream) {
    std::uint64_t wire = 0;
    std::uint64_t graph = 0;
    Route route;
    if (stream_route(stream, wire, route) != CUDA_SUCCESS)
        return 0;
    const auto result = ask(route, protocol::Message<protocol::CaptureInfo>{.fixed = {.stream = wire}},
                            kMostCaptureBytes, [&](CUresult, const auto &reply) {
                                if (reply.fixed.status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
                                    graph = reply.fixed.graph;
                            });
    return result == CUDA_SUCCESS ? graph : 0;
}

// A graph or executable graph has ended.
void release_user_objects(std::uint64_t graph) {
    std::vector<std::uint64_t> ended;
    {
        auto &all = user_objects();
        const std::scoped_lock lock(all.lock);
        const auto found = all.held.find(graph);
        if (found == all.held.end())
            return;
        for (const auto &[handle, count] : found->second)
            if (drop(handle, count))
                ended.push_back(handle);
        all.held.erase(found);
    }
    for (const auto handle : ended)
        destroy_object(handle);
}

// A copy of a graph, an executable one included, holds what the graph holds.
void share_user_objects(std::uint64_t from, std::uint64_t to) { hold_same(from, to); }

} // namespace singularity::client

extern "C" {

// --- Capture

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    auto request = driver_api::StreamBeginCaptureV2Call::request(ApiId::kStreamBeginCaptureV2, hStream, mode);
    return begin(request, mode, [&](std::span<const std::byte> bytes) {
        return driver_api::decode_StreamBeginCaptureV2Reply(*request, bytes);
    });
}
CUresult cuStreamBeginCapture(CUstream hStream) {
    return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
    auto request = driver_api::StreamBeginCaptureToGraphCall::request(ApiId::kStreamBeginCaptureToGraph,
                                                                      hStream, hGraph, dependencies,
                                                                      dependencyData, numDependencies, mode);
    return begin(request, mode, [&](std::span<const std::byte> bytes) {
        return driver_api::decode_StreamBeginCaptureToGraphReply(*request, bytes);
    });
}

// Also where it fails there is no capture any more. What comes out has one name: the one that it was given,
// or that the program was told, while it grew.
CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    auto graph = captured_graph(hStream);
    if (graph == 0)
        graph = new_handle(driver_api::kHandleGraph);
    auto request =
        driver_api::StreamEndCaptureCall::request(ApiId::kStreamEndCapture, graph, hStream, phGraph);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleStream, request->hStream); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = may_end_capture(request->hStream); bad != CUDA_SUCCESS) {
        drop_route();
        return bad;
    }
    const auto result = send_sync(
        *request,
        [&](std::span<const std::byte> bytes) {
            return driver_api::decode_StreamEndCaptureReply(*request, bytes);
        },
        [&](const auto &reply) { driver_api::StreamEndCaptureCall::finish(*request, reply, phGraph); });
    if (result != CUDA_ERROR_ILLEGAL_STATE && result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD &&
        result != CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
        capture_ended(request->hStream);
    if (result == CUDA_SUCCESS && find_as<Object>(driver_api::kHandleGraph, graph) == nullptr)
        made(driver_api::kHandleGraph, graph, ApiId::kStreamEndCapture, &*request);
    return result;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out, size_t *numDependencies_out) {
    return capture_info(hStream, {.status = captureStatus_out,
                                  .id = id_out,
                                  .graph = graph_out,
                                  .nodes = dependencies_out,
                                  .edges = nullptr,
                                  .count = numDependencies_out});
}
CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out,
                                   size_t *numDependencies_out) {
    return capture_info(hStream, {.status = captureStatus_out,
                                  .id = id_out,
                                  .graph = graph_out,
                                  .nodes = dependencies_out,
                                  .edges = edgeData_out,
                                  .count = numDependencies_out});
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = exchange_capture_mode(*mode);
    return CUDA_SUCCESS;
}

// --- Nodes of a graph

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
    return list_nodes(nodes, numNodes, [&](CUgraphNode *out, size_t *count) {
        auto request = driver_api::GraphGetNodesCall::request(ApiId::kGraphGetNodes, hGraph, out, count);
        if (!request)
            return refused(request.error());
        if (const auto bad = check_handle(driver_api::kHandleGraph, request->hGraph); bad != CUDA_SUCCESS)
            return bad;
        return send_sync(
            *request,
            [&](std::span<const std::byte> bytes) {
                return driver_api::decode_GraphGetNodesReply(*request, bytes);
            },
            [&](const auto &reply) { driver_api::GraphGetNodesCall::finish(*request, reply, out, count); });
    });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes) {
    return list_nodes(rootNodes, numRootNodes, [&](CUgraphNode *out, size_t *count) {
        auto request =
            driver_api::GraphGetRootNodesCall::request(ApiId::kGraphGetRootNodes, hGraph, out, count);
        if (!request)
            return refused(request.error());
        if (const auto bad = check_handle(driver_api::kHandleGraph, request->hGraph); bad != CUDA_SUCCESS)
            return bad;
        return send_sync(
            *request,
            [&](std::span<const std::byte> bytes) {
                return driver_api::decode_GraphGetRootNodesReply(*request, bytes);
            },
            [&](const auto &reply) {
                driver_api::GraphGetRootNodesCall::finish(*request, reply, out, count);
            });
    });
}

// Kernels would be given the driver's own number of one, which is another number on another device.
CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle * /*pHandle_out*/, CUgraph /*hGraph*/,
                                        CUcontext /*ctx*/, unsigned int /*defaultLaunchValue*/,
                                        unsigned int /*flags*/) {
    return static_cast<CUresult>(libcuda::unsupported(ApiId::kGraphConditionalHandleCreate));
}

// --- Executable graphs

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    Route route;
    if (const auto bad = graph_route(hGraph, route); bad != CUDA_SUCCESS)
        return bad;
    if (phGraphExec == nullptr || instantiateParams == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t stream = 0;
    if ((instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
        if (const auto bad = stream_route(instantiateParams->hUploadStream, stream, route);
            bad != CUDA_SUCCESS)
            return bad;
    if (has_collectives(word_of(hGraph))) [[unlikely]]
        return instantiate_parted(phGraphExec, hGraph, *instantiateParams);
    auto &table = process().table(driver_api::kHandleGraphExec);
    const auto handle = table.reserve();
    const auto result =
        ask(route,
            protocol::Message<protocol::InstantiateGraph>{.fixed = {.graph = word_of(hGraph),
                                                                    .exec = handle,
                                                                    .flags = instantiateParams->flags,
                                                                    .upload_stream = stream}},
            0, [&](CUresult, const auto &reply) {
                instantiateParams->hErrNode_out = std::bit_cast<CUgraphNode>(reply.fixed.error_node);
                instantiateParams->result_out = static_cast<CUgraphInstantiateResult>(reply.fixed.outcome);
            });
    if (result != CUDA_SUCCESS)
        return result;
    auto object = std::make_unique<Object>();
    object->session = route.session;
    object->context = route.context;
    table.add(handle, std::move(object));
    share_user_objects(word_of(hGraph), handle);
    share_graph_memory(word_of(hGraph), handle, instantiateParams->flags);
    *phGraphExec = std::bit_cast<CUgraphExec>(handle);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo *resultInfo) {
    Route route;
    if (const auto bad = graph_route(hGraph, route); bad != CUDA_SUCCESS)
        return bad;
    const auto parted = parted_graph(hGraphExec);
    if (resultInfo == nullptr ||
        (parted == nullptr && find_object(driver_api::kHandleGraphExec, word_of(hGraphExec)) == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    if (parted != nullptr || has_collectives(word_of(hGraph)))
        return update_parted(parted.get(), hGraphExec, hGraph, *resultInfo);
    const auto result =
        ask(route,
            protocol::Message<protocol::UpdateGraphExec>{
                .fixed = {.exec = word_of(hGraphExec), .graph = word_of(hGraph)}},
            0, [&](CUresult, const auto &reply) {
                resultInfo->result = static_cast<CUgraphExecUpdateResult>(reply.fixed.outcome);
                resultInfo->errorNode = std::bit_cast<CUgraphNode>(reply.fixed.error_node);
                resultInfo->errorFromNode = std::bit_cast<CUgraphNode>(reply.fixed.error_from_node);
            });
    if (result == CUDA_SUCCESS)
        update_graph_memory(word_of(hGraph), word_of(hGraphExec));
    return result;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (any_graph_memory()) [[unlikely]]
        if (const auto bad = launch_memory(hGraphExec, hStream); bad != CUDA_SUCCESS)
            return bad;
    if (any_graph_collectives()) [[unlikely]]
        if (const auto parted = parted_graph(hGraphExec); parted != nullptr)
            return launch_parted(*parted, hStream);
    return any_launch_apart() ? launch_apart(hGraphExec, hStream) : launch(hGraphExec, hStream);
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags) {
    Route route;
    if (const auto bad = graph_route(hGraph, route); bad != CUDA_SUCCESS)
        return bad;
    if (path == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    bool written = false;
    const auto result = ask(
        route, protocol::Message<protocol::PrintGraph>{.fixed = {.graph = word_of(hGraph), .flags = flags}},
        protocol::kReadPiece, [&](const auto &reply) {
            std::ofstream file(path, std::ios::binary);
            const auto text = protocol::text_of(reply.buffers[0]);
            written =
                static_cast<bool>(file.write(text.data(), static_cast<std::streamsize>(text.size())).flush());
        });
    return result == CUDA_SUCCESS && !written ? CUDA_ERROR_OPERATING_SYSTEM : result;
}

// --- User objects

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 || initialRefcount > INT_MAX ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    auto &table = process().table(driver_api::kHandleUserObject);
    const auto handle = table.reserve();
    auto object = std::make_unique<UserObject>();
    object->data = ptr;
    object->destroy = destroy;
    object->count = initialRefcount;
    table.add(handle, std::move(object));
    *object_out = std::bit_cast<CUuserObject>(handle);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    auto *const found = find_as<UserObject>(driver_api::kHandleUserObject, word_of(object));
    if (found == nullptr || count == 0 || count > INT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    const std::scoped_lock lock(user_objects().lock);
    found->count += count;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (find_object(driver_api::kHandleUserObject, word_of(object)) == nullptr || count == 0 ||
        count > INT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    bool last = false;
    {
        const std::scoped_lock lock(user_objects().lock);
        last = drop(word_of(object), count);
    }
    if (last)
        destroy_object(word_of(object));
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
    Route route;
    if (const auto bad = graph_route(graph, route); bad != CUDA_SUCCESS)
        return bad;
    auto *const found = find_as<UserObject>(driver_api::kHandleUserObject, word_of(object));
    if (found == nullptr || count == 0 || count > INT_MAX || (flags & ~1U) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const std::scoped_lock lock(user_objects().lock);
    if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0)
        found->count += count;
    user_objects().held[word_of(graph)][word_of(object)] += count;
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
    Route route;
    if (const auto bad = graph_route(graph, route); bad != CUDA_SUCCESS)
        return bad;
    bool last = false;
    {
        auto &all = user_objects();
        const std::scoped_lock lock(all.lock);
        auto &references = all.held[word_of(graph)];
        const auto found = references.find(word_of(object));
        if (found == references.end() || count == 0 || found->second < count)
            return CUDA_ERROR_INVALID_VALUE;
        found->second -= count;
        if (found->second == 0)
            references.erase(found);
        last = drop(word_of(object), count);
    }
    if (last)
        destroy_object(word_of(object));
    return CUDA_SUCCESS;
}

} // extern "C"
