// SPDX-License-Identifier: GPL-2.0-or-later
// Collectives in graphs. In the graph a node that does nothing stands for each group of them. The daemon
// instantiates such a graph in parts, and a launch puts the parts into its stream and issues the collectives
// between them, as calls of the program's: what holds for those (the gate, the order of groups, whose turn it
// is on a device that is shared) holds here.
//
// The whole has a handle that no table knows: what is not done here for it, INVALID_HANDLE is the answer.
#pragma once

#include "context.hpp"
#include "proxy/client/forward.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace singularity::client {

// Of whoever issues it (nccl_table); given back with the last graph that has it.
class CapturedCollective {
  public:
    explicit CapturedCollective(Context &context) : context_(context) {}
    virtual ~CapturedCollective() = default;
    CapturedCollective(const CapturedCollective &) = delete;
    CapturedCollective &operator=(const CapturedCollective &) = delete;
    CapturedCollective(CapturedCollective &&) = delete;
    CapturedCollective &operator=(CapturedCollective &&) = delete;

    [[nodiscard]] Context &context() const { return context_; }
    // Why it cannot be issued; nullptr: it can.
    [[nodiscard]] virtual const char *unusable() const = 0;
    // Puts it on a stream; why that has failed, or nullptr.
    [[nodiscard]] virtual const char *issue(CUstream stream) const = 0;

  private:
    Context &context_;
};
using CollectivePointer = std::shared_ptr<const CapturedCollective>;

// An executable graph with collectives.
class PartedGraph {
  public:
    PartedGraph() = default;
    ~PartedGraph() = default; // see end()
    PartedGraph(const PartedGraph &) = delete;
    PartedGraph &operator=(const PartedGraph &) = delete;
    PartedGraph(PartedGraph &&) = delete;
    PartedGraph &operator=(PartedGraph &&) = delete;

    [[nodiscard]] CUresult make(CUgraph graph, std::uint64_t flags);
    [[nodiscard]] CUresult launch(CUstream stream);
    [[nodiscard]] CUresult upload(CUstream stream);
    // It does what the graph does now. changed: the graph has not the same collectives, or other parts.
    [[nodiscard]] CUresult update(CUgraph graph, bool &changed);
    [[nodiscard]] std::uint64_t flags() const { return flags_; }
    // With what the driver has of it; launches that are under way go on.
    void end();

  private:
    struct Step {
        std::uint64_t part = 0;       // an executable graph; 0: none comes before the collective
        std::size_t nodes = 0;        // of it
        std::size_t after = 0;        // collectives that the part comes after
        CollectivePointer collective; // nullptr: the last step has none
        CUevent ended = nullptr;      // the collective has; nullptr: everything is in the launch's own stream
    };
    [[nodiscard]] CUresult make_beside();
    [[nodiscard]] CUresult put(const Step &step, CUstream stream);
    [[nodiscard]] CUresult fail(const char *why) const;

    std::mutex lock_; // for one launch after the other
    std::uint64_t flags_ = 0;
    Context *context_ = nullptr; // of the collectives
    std::vector<Step> steps_;
    // Where some part need not wait for the collective in front of it, collectives have a stream of their
    // own.
    CUstream beside_ = nullptr;
    CUevent reached_ = nullptr; // what a collective comes after, in the launch's stream
    CUevent launched_ = nullptr;
    CUstream last_ = nullptr;
    bool any_launch_ = false;
};

// Behind what the stream's capture has recorded. STREAM_CAPTURE_INVALIDATED: nothing is captured there.
[[nodiscard]] CUresult capture_collective(CUstream stream, CollectivePointer collective);
// Whether there has been one; nothing else needs to be asked then.
[[nodiscard]] bool any_graph_collectives();
[[nodiscard]] bool has_collectives(std::uint64_t graph);
// A clone has what the graph has.
[[nodiscard]] CUresult clone_collectives(CUgraph original, CUgraph clone);
void forget_collectives(std::uint64_t graph);
// What would be lost in a graph within another one is refused, in words.
[[nodiscard]] CUresult allowed_within(std::uint64_t graph);

// Executable graphs with collectives by their handles; nullptr: it is none.
[[nodiscard]] CUresult add_parted(CUgraph graph, std::uint64_t flags, std::uint64_t &handle);
[[nodiscard]] std::shared_ptr<PartedGraph> parted_graph(CUgraphExec executable);
[[nodiscard]] std::shared_ptr<PartedGraph> remove_parted(CUgraphExec executable);

} // namespace singularity::client
