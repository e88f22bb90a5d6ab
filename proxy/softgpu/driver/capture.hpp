// SPDX-License-Identifier: GPL-2.0-or-later
// Stream capture: work that becomes graph nodes. Rules: cuda.h, cuStreamBeginCapture_v2 and
// cuThreadExchangeStreamCaptureMode. All state is guarded by graph_mutex().
#pragma once

#include "driver/context.hpp"
#include "driver/graph.hpp"

#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace singularity::softgpu::driver {

struct CaptureSession {
    std::uint64_t id = 0;
    std::shared_ptr<Graph> graph;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id thread;
    std::uint64_t context = 0; // id
    std::uint64_t origin = 0;  // id of the stream
    bool invalidated = false;
    bool graph_is_the_programs = false;
    std::vector<std::shared_ptr<Stream>> streams;
};

struct StreamCapture {
    std::shared_ptr<CaptureSession> session;
    std::vector<std::shared_ptr<GraphNode>> dependencies; // what the next node comes after
    std::vector<CUgraphNode> reported;                    // memory that cuStreamGetCaptureInfo gave out
    std::vector<CUgraphEdgeData> reported_edges;
};

[[nodiscard]] CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode); // of the calling thread

// If the stream is being captured: the operation has become a node, or why not. Nothing: it is to be run.
// A synchronous call ends a capture, as does one on the legacy stream that the captured ones would wait for.
[[nodiscard]] std::optional<CUresult> capture(Context &context, Stream &stream, const Operation &operation,
                                              bool asynchronous);
// For calls that may not be made while a capture goes on, by the modes of captures and of the calling thread.
[[nodiscard]] CUresult unsafe_while_capturing();
// For calls that wait for the stream or ask how far it is.
[[nodiscard]] CUresult waiting_while_capturing(Stream &stream);

[[nodiscard]] CUresult begin_capture(Stream &stream, CUstreamCaptureMode mode, std::shared_ptr<Graph> into,
                                     std::vector<std::shared_ptr<GraphNode>> dependencies);
[[nodiscard]] Result<std::shared_ptr<Graph>> end_capture(Stream &stream);
// A capture ends with the stream it began in. What another one did stays in the graph.
void end_capture_with(Stream &stream);
// Records the event in a capture / makes the stream come after it. Nothing: no capture is concerned.
[[nodiscard]] std::optional<CUresult> capture_record(Stream &stream, const std::shared_ptr<Event> &event,
                                                     bool external);
[[nodiscard]] std::optional<CUresult> capture_wait(Stream &stream, const std::shared_ptr<Event> &event,
                                                   bool external);
// Memory of a graph for cuMemAllocAsync in a captured stream.
[[nodiscard]] std::optional<Result<CUdeviceptr>> capture_allocation(Context &context, Stream &stream,
                                                                    CUDA_MEM_ALLOC_NODE_PARAMS parameters);

} // namespace singularity::softgpu::driver
