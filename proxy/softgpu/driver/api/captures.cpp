// SPDX-License-Identifier: GPL-2.0-or-later
// Stream capture.
#include "driver/api/entry.hpp"
#include "driver/capture.hpp"

#include <algorithm>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

CUresult begin_into(Stream &stream, CUgraph handle, const CUgraphNode *dependencies, std::size_t count,
                    CUstreamCaptureMode mode) {
    const auto graph = graphs().find(handle);
    if (graph == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    auto nodes = nodes_of(*graph, dependencies, count);
    return nodes ? begin_capture(stream, mode, graph, *std::move(nodes)) : nodes.error();
}

CUresult end(Stream &stream, CUgraph *out) {
    const auto graph = end_capture(stream);
    if (out != nullptr)
        *out = graph ? (*graph)->handle : nullptr;
    return graph ? CUDA_SUCCESS : graph.error();
}

struct Information {
    CUstreamCaptureStatus *status = nullptr;
    cuuint64_t *id = nullptr;
    CUgraph *graph = nullptr;
    const CUgraphNode **dependencies = nullptr;
    const CUgraphEdgeData **edges = nullptr;
    std::size_t *count = nullptr;
};

CUresult describe(Stream &stream, const Information &out) {
    if (out.status == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const std::scoped_lock lock(graph_mutex());
    *out.status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (out.count != nullptr)
        *out.count = 0;
    if (stream.capture == nullptr)
        return CUDA_SUCCESS;
    StreamCapture &state = *stream.capture;
    *out.status =
        state.session->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (out.id != nullptr)
        *out.id = state.session->id;
    if (out.graph != nullptr)
        *out.graph = state.session->graph->handle;
    state.reported.clear();
    for (const auto &node : state.dependencies)
        state.reported.push_back(node->handle);
    state.reported_edges.assign(state.reported.size(), CUgraphEdgeData{});
    if (out.dependencies != nullptr)
        *out.dependencies = state.reported.data();
    if (out.edges != nullptr)
        *out.edges = state.reported_edges.data();
    if (out.count != nullptr)
        *out.count = state.reported.size();
    return CUDA_SUCCESS;
}

// Of the legacy stream nobody may ask while another one is captured that it would wait for.
CUresult describe(CUstream handle, const Information &out) {
    return with_stream(handle, [&](Context &, Stream &stream) { return describe(stream, out); });
}

CUresult update(CUstream handle, const CUgraphNode *nodes, std::size_t count, unsigned flags) {
    return with_stream(handle, [&](Context &, Stream &stream) {
        const std::scoped_lock lock(graph_mutex());
        if (stream.capture == nullptr)
            return CUDA_ERROR_ILLEGAL_STATE;
        if (stream.capture->session->invalidated)
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        auto found = nodes_of(*stream.capture->session->graph, nodes, count);
        if (!found || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
            return CUDA_ERROR_INVALID_VALUE;
        auto &now = stream.capture->dependencies;
        if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
            now.clear();
        for (auto &node : *found)
            if (!std::ranges::contains(now, node))
                now.push_back(std::move(node));
        return CUDA_SUCCESS;
    });
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    return with_driver([&] {
        if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
            *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
            return CUDA_ERROR_INVALID_VALUE;
        *mode = exchange_capture_mode(*mode);
        return CUDA_SUCCESS;
    });
}
CUresult cuStreamBeginCapture(CUstream hStream) {
    return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    return with_stream(hStream,
                       [&](Context &, Stream &stream) { return begin_capture(stream, mode, nullptr, {}); });
}
CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData * /*dependencyData*/, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
    return with_stream(hStream, [&](Context &, Stream &stream) {
        return begin_into(stream, hGraph, dependencies, numDependencies, mode);
    });
}
CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    return with_stream(hStream, [&](Context &, Stream &stream) { return end(stream, phGraph); });
}
CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    Information out;
    out.status = captureStatus;
    return describe(hStream, out);
}
CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                cuuint64_t *id_out) {
    Information out;
    out.status = captureStatus_out;
    out.id = id_out;
    return describe(hStream, out);
}
CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out, size_t *numDependencies_out) {
    return describe(hStream,
                    {captureStatus_out, id_out, graph_out, dependencies_out, nullptr, numDependencies_out});
}
CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out,
                                   size_t *numDependencies_out) {
    return describe(
        hStream, {captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out});
}
CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                           size_t numDependencies, unsigned int flags) {
    return update(hStream, dependencies, numDependencies, flags);
}
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData * /*dependencyData*/,
                                              size_t numDependencies, unsigned int flags) {
    return update(hStream, dependencies, numDependencies, flags);
}

} // extern "C"
