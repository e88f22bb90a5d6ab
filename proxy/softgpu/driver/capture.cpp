// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/capture.hpp"

#include "driver/event.hpp"
#include "driver/platform.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// The fast way out: most programs never capture.
std::atomic<unsigned> captures{0};

std::vector<std::shared_ptr<CaptureSession>> &sessions() {
    static auto &all = *new std::vector<std::shared_ptr<CaptureSession>>; // outlives every thread
    return all;
}

struct TypeOf {
    CUgraphNodeType operator()(const KernelOperation & /*unused*/) const { return CU_GRAPH_NODE_TYPE_KERNEL; }
    CUgraphNodeType operator()(const CopyOperation & /*unused*/) const { return CU_GRAPH_NODE_TYPE_MEMCPY; }
    CUgraphNodeType operator()(const FillOperation & /*unused*/) const { return CU_GRAPH_NODE_TYPE_MEMSET; }
    CUgraphNodeType operator()(const HostOperation & /*unused*/) const { return CU_GRAPH_NODE_TYPE_HOST; }
    CUgraphNodeType operator()(const MemoryOperations & /*unused*/) const {
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    }
    CUgraphNodeType operator()(const EventRecord & /*unused*/) const {
        return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    }
    CUgraphNodeType operator()(const EventWait & /*unused*/) const { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; }
    CUgraphNodeType operator()(const AllocationOperation & /*unused*/) const {
        return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    }
    CUgraphNodeType operator()(const FreeOperation & /*unused*/) const { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
    CUgraphNodeType operator()(const auto & /*unused*/) const { return CU_GRAPH_NODE_TYPE_EMPTY; }
};

CUgraphNodeType type_of(const Operation &operation) { return std::visit(TypeOf{}, operation); }

void finish(const std::shared_ptr<CaptureSession> &session) {
    for (const auto &stream : session->streams)
        stream->capture.reset();
    session->streams.clear();
    if (std::erase(sessions(), session) != 0)
        --captures;
}

Result<std::shared_ptr<GraphNode>> add_node(Stream &stream, const Operation &operation) {
    auto &state = *stream.capture;
    if (state.session->invalidated)
        return refused(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    auto node = state.session->graph->add(type_of(operation), operation, state.dependencies);
    if (node) {
        (*node)->context = stream.context_ptr();
        state.dependencies = {*node};
    }
    return node;
}

// Blocking streams of the context wait for its legacy stream, so one that is captured cannot be used beside
// it.
CUresult legacy_stream_used(const Context &context) {
    CUresult result = CUDA_SUCCESS;
    for (const auto &session : sessions())
        if (session->context == context.id() &&
            std::ranges::any_of(session->streams, [](const auto &one) { return !one->non_blocking(); })) {
            session->invalidated = true;
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return result;
}

} // namespace

CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode) {
    return std::exchange(thread_mode, mode);
}

std::optional<CUresult> capture(Context &context, Stream &stream, const Operation &operation,
                                bool asynchronous) {
    if (captures.load(std::memory_order_acquire) == 0)
        return std::nullopt;
    const std::scoped_lock lock(graph_mutex());
    if (stream.capture != nullptr) {
        if (!asynchronous) {
            stream.capture->session->invalidated = true;
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
        const auto node = add_node(stream, operation);
        return node ? CUDA_SUCCESS : node.error();
    }
    if (stream.role() == Stream::Role::legacy)
        if (const CUresult result = legacy_stream_used(context); result != CUDA_SUCCESS)
            return result;
    return std::nullopt;
}

CUresult unsafe_while_capturing() {
    if (captures.load(std::memory_order_acquire) == 0 || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    const std::scoped_lock lock(graph_mutex());
    CUresult result = CUDA_SUCCESS;
    for (const auto &session : sessions()) {
        const bool own =
            session->thread == std::this_thread::get_id() && session->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        const bool other =
            thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && session->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (own || other) {
            session->invalidated = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult waiting_while_capturing(Stream &stream) {
    if (captures.load(std::memory_order_acquire) == 0)
        return CUDA_SUCCESS;
    const std::scoped_lock lock(graph_mutex());
    if (stream.capture != nullptr) {
        stream.capture->session->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return stream.role() == Stream::Role::legacy ? legacy_stream_used(stream.context()) : CUDA_SUCCESS;
}

CUresult begin_capture(Stream &stream, CUstreamCaptureMode mode, std::shared_ptr<Graph> into,
                       std::vector<std::shared_ptr<GraphNode>> dependencies) {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream.role() == Stream::Role::legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const std::scoped_lock lock(graph_mutex());
    if (stream.capture != nullptr)
        return CUDA_ERROR_ILLEGAL_STATE;
    auto session = std::make_shared<CaptureSession>();
    session->id = next_id();
    session->graph_is_the_programs = into != nullptr;
    session->graph = into != nullptr ? std::move(into) : make_graph();
    session->mode = mode;
    session->thread = std::this_thread::get_id();
    session->context = stream.context().id();
    session->origin = stream.id();
    session->streams.push_back(stream.shared_from_this());
    stream.capture = std::make_shared<StreamCapture>();
    stream.capture->session = session;
    stream.capture->dependencies = std::move(dependencies);
    sessions().push_back(std::move(session));
    ++captures;
    return CUDA_SUCCESS;
}

Result<std::shared_ptr<Graph>> end_capture(Stream &stream) {
    std::shared_ptr<Graph> dropped; // ends without the lock
    const std::scoped_lock lock(graph_mutex());
    if (stream.capture == nullptr)
        return refused(CUDA_ERROR_ILLEGAL_STATE);
    const auto session = stream.capture->session;
    if (session->mode != CU_STREAM_CAPTURE_MODE_RELAXED && session->thread != std::this_thread::get_id())
        return refused(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    if (session->origin != stream.id())
        return refused(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    const auto own = stream.capture->dependencies;
    CUresult result = session->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    // What other streams did must have been waited for, directly or not.
    for (const auto &other : session->streams)
        if (result == CUDA_SUCCESS && other.get() != &stream)
            for (const auto &node : other->capture->dependencies)
                if (std::ranges::none_of(own, [&](const auto &end) { return Graph::leads_to(*node, *end); }))
                    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    auto graph = session->graph;
    finish(session);
    if (result != CUDA_SUCCESS) {
        if (!session->graph_is_the_programs)
            dropped = graphs().take(graph->handle);
        return refused(result);
    }
    return graph;
}

void end_capture_with(Stream &stream) {
    std::shared_ptr<Graph> dropped; // ends without the lock
    if (captures.load(std::memory_order_acquire) == 0)
        return;
    const std::scoped_lock lock(graph_mutex());
    if (stream.capture == nullptr || stream.capture->session->origin != stream.id())
        return;
    const auto session = stream.capture->session;
    finish(session);
    if (!session->graph_is_the_programs)
        dropped = graphs().take(session->graph->handle);
}

std::optional<CUresult> capture_record(Stream &stream, const std::shared_ptr<Event> &event, bool external) {
    if (captures.load(std::memory_order_acquire) == 0 && !event->captured.load(std::memory_order_acquire))
        return std::nullopt;
    const std::scoped_lock lock(graph_mutex());
    if (stream.capture == nullptr) {
        event->captured_in.reset();
        event->captured_nodes.clear();
        event->captured.store(false, std::memory_order_release);
        if (stream.role() == Stream::Role::legacy)
            if (const CUresult result = legacy_stream_used(stream.context()); result != CUDA_SUCCESS)
                return result;
        return std::nullopt;
    }
    if (stream.capture->session->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external) {
        const auto node = add_node(stream, EventRecord{event, event->handle, true});
        return node ? CUDA_SUCCESS : node.error();
    }
    event->captured_in = stream.capture->session;
    event->captured_nodes = stream.capture->dependencies;
    event->captured.store(true, std::memory_order_release);
    return CUDA_SUCCESS;
}

std::optional<CUresult> capture_wait(Stream &stream, const std::shared_ptr<Event> &event, bool external) {
    if (captures.load(std::memory_order_acquire) == 0)
        return std::nullopt;
    const std::scoped_lock lock(graph_mutex());
    auto session = event->captured_in;
    if (session != nullptr && !std::ranges::contains(sessions(), session))
        session.reset(); // that capture is over
    if (stream.capture == nullptr) {
        if (session == nullptr) {
            if (event->captured_in != nullptr)
                return CUDA_ERROR_CAPTURED_EVENT;
            if (stream.role() == Stream::Role::legacy)
                if (const CUresult result = legacy_stream_used(stream.context()); result != CUDA_SUCCESS)
                    return result;
            return std::nullopt;
        }
        if (session->invalidated)
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        if (stream.role() == Stream::Role::legacy) {
            session->invalidated = true;
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        stream.capture = std::make_shared<StreamCapture>();
        stream.capture->session = session;
        stream.capture->dependencies = event->captured_nodes;
        session->streams.push_back(stream.shared_from_this());
        return CUDA_SUCCESS;
    }
    auto &state = *stream.capture;
    if (state.session->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external) {
        const auto node = add_node(stream, EventWait{event, event->handle});
        return node ? CUDA_SUCCESS : node.error();
    }
    if (session == nullptr) {
        // Work outside of the capture cannot be waited for in a graph.
        state.session->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (session != state.session) {
        state.session->invalidated = session->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    for (const auto &node : event->captured_nodes)
        if (!std::ranges::contains(state.dependencies, node))
            state.dependencies.push_back(node);
    return CUDA_SUCCESS;
}

std::optional<Result<CUdeviceptr>> capture_allocation(Context & /*context*/, Stream &stream,
                                                      CUDA_MEM_ALLOC_NODE_PARAMS parameters) {
    if (captures.load(std::memory_order_acquire) == 0)
        return std::nullopt;
    const std::scoped_lock lock(graph_mutex());
    if (stream.capture == nullptr)
        return std::nullopt;
    auto operation = make_graph_allocation(parameters);
    if (!operation)
        return refused(operation.error());
    const auto node = add_node(stream, *std::move(operation));
    if (!node)
        return refused(node.error());
    return parameters.dptr;
}

void end_captures(const Context &context) {
    if (captures.load(std::memory_order_acquire) == 0)
        return;
    std::vector<std::shared_ptr<CaptureSession>> ended; // end without the lock
    const std::scoped_lock lock(graph_mutex());
    for (const auto &session : sessions())
        if (session->context == context.id())
            ended.push_back(session);
    for (const auto &session : ended)
        finish(session);
}

} // namespace singularity::softgpu::driver
