// SPDX-License-Identifier: GPL-2.0-or-later
#include "graph_collectives.hpp"

#include "copy.hpp"
#include "graph.hpp"
#include "log.hpp"
#include "objects.hpp"
#include "proxy/libcuda/entry.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <span>
#include <utility>

namespace singularity::client {

namespace {

struct CollectiveNode {
    std::uint64_t node = 0;
    CollectivePointer collective;
};

struct GraphCollectives {
    std::mutex lock;
    std::atomic<bool> any = false;
    std::map<std::uint64_t, std::vector<CollectiveNode>> graphs; // in the order in which they were captured
    std::map<std::uint64_t, std::shared_ptr<PartedGraph>> parted;
};

GraphCollectives &graph_collectives() {
    static auto &instance = *std::make_unique<GraphCollectives>().release(); // see process()
    return instance;
}

std::vector<CollectiveNode> collectives_of(std::uint64_t graph) {
    auto &all = graph_collectives();
    const std::scoped_lock lock(all.lock);
    const auto found = all.graphs.find(graph);
    return found == all.graphs.end() ? std::vector<CollectiveNode>() : found->second;
}

std::uint64_t number_of(const void *handle) { return std::bit_cast<std::uint64_t>(handle); }

// The stream by its own name, whatever the calling function's default stream is.
CUstream named(CUstream stream) {
    if (stream != nullptr)
        return stream;
    return libcuda::per_thread_default_stream() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

CUresult order(CUstream earlier, CUevent event, CUstream later) {
    const auto recorded = cuEventRecord(event, earlier);
    return recorded != CUDA_SUCCESS ? recorded : cuStreamWaitEvent(later, event, 0);
}

} // namespace

CUresult PartedGraph::make(CUgraph graph, std::uint64_t flags) {
    constexpr std::uint64_t kDeviceLaunch = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    constexpr std::uint64_t kUpload = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    if ((flags & kDeviceLaunch) != 0) {
        kLog.warning("a graph with collectives cannot be launched by kernels: instantiate it without "
                     "CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    flags_ = flags;
    Route route;
    if (const auto bad = graph_route(graph, route); bad != CUDA_SUCCESS)
        return bad;
    // Those whose nodes the program has taken out are gone.
    auto collectives = collectives_of(number_of(graph));
    std::erase_if(collectives, [](const CollectiveNode &one) {
        return find_object(driver_api::kHandleGraphNode, one.node) == nullptr;
    });
    std::vector<std::uint64_t> marks;
    std::vector<std::uint64_t> handles;
    auto &table = process().table(driver_api::kHandleGraphExec);
    for (const auto &one : collectives)
        marks.push_back(one.node);
    if (marks.size() > protocol::kMostGraphCollectives) {
        kLog.warning(
            "a graph with {} collectives is too long, {} are possible: capture several graphs, or groups",
            marks.size(), protocol::kMostGraphCollectives);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (std::size_t part = 0; part <= marks.size(); ++part)
        handles.push_back(table.reserve());
    bool wrong_order = false;
    std::vector<protocol::PartOfGraph> parts;
    const auto result =
        ask(route,
            protocol::Message<protocol::InstantiateParts>{
                .fixed = {.graph = number_of(graph), .flags = flags & ~kUpload},
                .buffers = {protocol::view_of_elements(std::span<const std::uint64_t>(marks)),
                            protocol::view_of_elements(std::span<const std::uint64_t>(handles))}},
            handles.size() * sizeof(protocol::PartOfGraph), [&](CUresult, const auto &reply) {
                wrong_order = reply.fixed.wrong_order != 0;
                for (std::size_t at = 0;
                     at < protocol::element_count<protocol::PartOfGraph>(reply.buffers[0]); ++at)
                    parts.push_back(protocol::element<protocol::PartOfGraph>(reply.buffers[0], at));
            });
    if (wrong_order)
        kLog.warning(
            "{} collectives of a graph were captured in an order that its edges do not allow: capture "
            "them in the order of the edges",
            marks.size());
    if (result != CUDA_SUCCESS)
        return result;
    if (parts.size() != handles.size())
        return CUDA_ERROR_UNKNOWN;
    bool apart = false;
    for (std::size_t index = 0; index < parts.size(); ++index) {
        Step step;
        step.nodes = static_cast<std::size_t>(parts[index].nodes);
        step.after = std::min(static_cast<std::size_t>(parts[index].after), index);
        if (step.nodes != 0) {
            auto object = std::make_unique<Object>();
            object->session = route.session;
            object->context = route.context;
            table.add(handles[index], std::move(object));
            step.part = handles[index];
            apart = apart || step.after < index;
        }
        if (index < collectives.size()) {
            step.collective = collectives[index].collective;
            if (context_ == nullptr)
                context_ = &step.collective->context();
        }
        steps_.push_back(std::move(step));
    }
    if (context_ == nullptr) // all its collectives have been taken out
        return CUDA_SUCCESS;
    const OnContext scope(*context_);
    if (const auto bad = cuEventCreate(&launched_, CU_EVENT_DISABLE_TIMING); bad != CUDA_SUCCESS)
        return bad;
    return apart ? make_beside() : CUDA_SUCCESS;
}

CUresult PartedGraph::make_beside() {
    if (const auto bad = cuStreamCreate(&beside_, CU_STREAM_NON_BLOCKING); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = cuEventCreate(&reached_, CU_EVENT_DISABLE_TIMING); bad != CUDA_SUCCESS)
        return bad;
    for (auto &step : steps_)
        if (step.collective != nullptr)
            if (const auto bad = cuEventCreate(&step.ended, CU_EVENT_DISABLE_TIMING); bad != CUDA_SUCCESS)
                return bad;
    return CUDA_SUCCESS;
}

void PartedGraph::end() {
    const std::scoped_lock lock(lock_);
    const auto end_event = [](CUevent &event) {
        if (event != nullptr)
            static_cast<void>(cuEventDestroy_v2(std::exchange(event, nullptr)));
    };
    for (auto &step : steps_) {
        if (step.part != 0)
            static_cast<void>(cuGraphExecDestroy(std::bit_cast<CUgraphExec>(step.part)));
        end_event(step.ended);
    }
    steps_.clear();
    end_event(reached_);
    end_event(launched_);
    if (beside_ != nullptr)
        static_cast<void>(cuStreamDestroy_v2(std::exchange(beside_, nullptr)));
}

// As a kernel that cannot go on: the context has failed, and says so from now on.
CUresult PartedGraph::fail(const char *why) const {
    kLog.error("a graph with collectives cannot be launched: {}", why);
    note_result(context_, CUDA_ERROR_LAUNCH_FAILED);
    return CUDA_ERROR_LAUNCH_FAILED;
}

CUresult PartedGraph::launch(CUstream stream) {
    stream = named(stream);
    const std::scoped_lock lock(lock_);
    if (const auto bad = context_ == nullptr ? CUDA_SUCCESS : healthy(context_); bad != CUDA_SUCCESS)
        return bad;
    for (const auto &step : steps_)
        if (step.collective != nullptr)
            if (const char *const why = step.collective->unusable(); why != nullptr)
                return fail(why);
    // Launches of one graph come one after the other.
    if (any_launch_ && (last_ != stream || stream == CU_STREAM_PER_THREAD))
        if (const auto bad = cuStreamWaitEvent(stream, launched_, 0); bad != CUDA_SUCCESS)
            return bad;
    std::size_t waited = 0; // for so many collectives
    const auto wait_for = [&](std::size_t collectives) {
        if (beside_ == nullptr || collectives <= waited)
            return CUDA_SUCCESS;
        waited = collectives;
        return cuStreamWaitEvent(stream, steps_[waited - 1].ended, 0);
    };
    for (const auto &step : steps_) {
        if (const auto bad = step.part == 0 ? CUDA_SUCCESS : wait_for(step.after); bad != CUDA_SUCCESS)
            return bad;
        if (const auto bad = put(step, stream); bad != CUDA_SUCCESS)
            return bad;
    }
    if (const auto bad = wait_for(steps_.size() - 1); bad != CUDA_SUCCESS)
        return bad;
    if (launched_ != nullptr)
        if (const auto bad = cuEventRecord(launched_, stream); bad != CUDA_SUCCESS)
            return bad;
    last_ = stream;
    any_launch_ = launched_ != nullptr;
    return CUDA_SUCCESS;
}

CUresult PartedGraph::put(const Step &step, CUstream stream) {
    if (step.part != 0)
        if (const auto bad = cuGraphLaunch(std::bit_cast<CUgraphExec>(step.part), stream);
            bad != CUDA_SUCCESS)
            return bad;
    if (step.collective == nullptr)
        return CUDA_SUCCESS;
    if (beside_ != nullptr)
        if (const auto bad = order(stream, reached_, beside_); bad != CUDA_SUCCESS)
            return bad;
    if (const char *const why = step.collective->issue(beside_ != nullptr ? beside_ : stream); why != nullptr)
        return fail(why);
    return beside_ != nullptr ? cuEventRecord(step.ended, beside_) : CUDA_SUCCESS;
}

CUresult PartedGraph::upload(CUstream stream) {
    const std::scoped_lock lock(lock_);
    for (const auto &step : steps_)
        if (step.part != 0)
            if (const auto bad = cuGraphUpload(std::bit_cast<CUgraphExec>(step.part), stream);
                bad != CUDA_SUCCESS)
                return bad;
    return CUDA_SUCCESS;
}

CUresult PartedGraph::update(CUgraph graph, bool &changed) {
    PartedGraph other;
    const auto made = other.make(graph, flags_);
    {
        const std::scoped_lock lock(lock_);
        changed = made == CUDA_SUCCESS &&
                  !std::ranges::equal(steps_, other.steps_, [](const Step &one, const Step &two) {
                      return one.nodes == two.nodes && one.after == two.after &&
                             (one.collective == nullptr) == (two.collective == nullptr);
                  });
        if (made == CUDA_SUCCESS && !changed) {
            // Their events and streams are alike; those in which launches are under way stay.
            for (std::size_t index = 0; index < steps_.size(); ++index) {
                std::swap(steps_[index].part, other.steps_[index].part);
                std::swap(steps_[index].collective, other.steps_[index].collective);
            }
        }
    }
    other.end();
    return made;
}

CUresult capture_collective(CUstream stream, CollectivePointer collective) {
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(stream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    std::uint64_t graph = 0;
    std::vector<CUgraphNode> before;
    std::vector<CUgraphEdgeData> edges;
    if (const auto bad =
            ask(route, protocol::Message<protocol::CaptureInfo>{.fixed = {.stream = wire}}, kMostCaptureBytes,
                [&](const auto &reply) {
                    if (reply.fixed.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
                        return;
                    graph = reply.fixed.graph;
                    const auto &[nodes, data] = reply.buffers;
                    for (std::size_t at = 0; at < protocol::element_count<CUgraphNode>(nodes); ++at)
                        before.push_back(protocol::element<CUgraphNode>(nodes, at));
                    for (std::size_t at = 0; at < protocol::element_count<CUgraphEdgeData>(data); ++at)
                        edges.push_back(protocol::element<CUgraphEdgeData>(data, at));
                });
        bad != CUDA_SUCCESS)
        return bad;
    if (graph == 0)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    const bool plain = std::ranges::all_of(edges, [](const CUgraphEdgeData &edge) {
        return edge.type == 0 && edge.from_port == 0 && edge.to_port == 0;
    });
    NodeContent nothing;
    nothing.set(protocol::NodeType::empty, protocol::EmptyBody{});
    CUgraphNode node = nullptr;
    const auto handle = std::bit_cast<CUgraph>(graph);
    if (const auto bad = add_node(&node, handle, route,
                                  {.nodes = before.data(),
                                   .edges = plain || edges.empty() ? nullptr : edges.data(),
                                   .count = before.size()},
                                  nothing);
        bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad =
            cuStreamUpdateCaptureDependencies(named(stream), &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
        bad != CUDA_SUCCESS)
        return bad;
    auto &all = graph_collectives();
    const std::scoped_lock lock(all.lock);
    all.graphs[graph].push_back({.node = number_of(node), .collective = std::move(collective)});
    all.any.store(true, std::memory_order_release);
    return CUDA_SUCCESS;
}

bool any_graph_collectives() { return graph_collectives().any.load(std::memory_order_acquire); }

bool has_collectives(std::uint64_t graph) {
    return any_graph_collectives() && !collectives_of(graph).empty();
}

CUresult clone_collectives(CUgraph original, CUgraph clone) {
    auto nodes = collectives_of(number_of(original));
    if (nodes.empty())
        return CUDA_SUCCESS;
    std::erase_if(nodes, [](const CollectiveNode &one) {
        return find_object(driver_api::kHandleGraphNode, one.node) == nullptr;
    });
    for (auto &one : nodes) {
        CUgraphNode copy = nullptr;
        if (const auto bad = cuGraphNodeFindInClone(&copy, std::bit_cast<CUgraphNode>(one.node), clone);
            bad != CUDA_SUCCESS)
            return bad;
        one.node = number_of(copy);
    }
    auto &all = graph_collectives();
    const std::scoped_lock lock(all.lock);
    all.graphs[number_of(clone)] = std::move(nodes);
    return CUDA_SUCCESS;
}

void forget_collectives(std::uint64_t graph) {
    if (!any_graph_collectives())
        return;
    std::vector<CollectiveNode> gone; // given back when the lock is
    auto &all = graph_collectives();
    const std::scoped_lock lock(all.lock);
    if (const auto found = all.graphs.find(graph); found != all.graphs.end()) {
        gone = std::move(found->second);
        all.graphs.erase(found);
    }
}

CUresult allowed_within(std::uint64_t graph) {
    if (!has_collectives(graph))
        return CUDA_SUCCESS;
    kLog.warning("a graph with collectives cannot be a node of another graph: launch it by itself");
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult add_parted(CUgraph graph, std::uint64_t flags, std::uint64_t &handle) {
    auto made = std::make_shared<PartedGraph>();
    if (const auto bad = made->make(graph, flags); bad != CUDA_SUCCESS) {
        made->end();
        return bad;
    }
    handle = process().table(driver_api::kHandleGraphExec).reserve();
    auto &all = graph_collectives();
    const std::scoped_lock lock(all.lock);
    all.parted.emplace(handle, std::move(made));
    return CUDA_SUCCESS;
}

std::shared_ptr<PartedGraph> parted_graph(CUgraphExec executable) {
    if (!any_graph_collectives())
        return nullptr;
    auto &all = graph_collectives();
    const std::scoped_lock lock(all.lock);
    const auto found = all.parted.find(number_of(executable));
    return found == all.parted.end() ? nullptr : found->second;
}

std::shared_ptr<PartedGraph> remove_parted(CUgraphExec executable) {
    if (!any_graph_collectives())
        return nullptr;
    auto &all = graph_collectives();
    const std::scoped_lock lock(all.lock);
    auto found = all.parted.extract(number_of(executable));
    return found.empty() ? nullptr : std::move(found.mapped());
}

} // namespace singularity::client
