// SPDX-License-Identifier: GPL-2.0-or-later
// The GPUs of the simulated cluster: which node has how many free, and from when on those that a checkpoint
// still reads can be used.
#pragma once

#include "units.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace singularity::simulator {

// A set of small numbers that finds its least element quickly.
class IndexSet {
  public:
    explicit IndexSet(std::size_t size) : words_((size + 63) / 64), summary_((words_.size() + 63) / 64) {}
    void insert(std::size_t index);
    void erase(std::size_t index);
    [[nodiscard]] std::size_t size() const { return size_; }
    // The least element not below `from`.
    [[nodiscard]] std::optional<std::size_t> first(std::size_t from = 0) const;

  private:
    std::vector<std::uint64_t> words_;
    std::vector<std::uint64_t> summary_; // one bit per word that is not zero
    std::size_t size_ = 0;
};

// Invariant: of every node that is up, GPUs that are free, and those in the placements given out and not yet
// released, sum to gpus_per_node.
class Pool {
  public:
    Pool(std::int32_t nodes, std::int32_t gpus_per_node);

    [[nodiscard]] std::int32_t nodes() const { return static_cast<std::int32_t>(nodes_.size()); }
    [[nodiscard]] std::int32_t gpus_per_node() const { return gpus_per_node_; }
    [[nodiscard]] std::int64_t free() const { return free_; } // of nodes that are up
    [[nodiscard]] std::int64_t up() const { return up_; }     // GPUs of nodes that are up
    [[nodiscard]] bool is_up(std::int32_t node) const { return at(node).up; }
    [[nodiscard]] std::int32_t free_on(std::int32_t node) const { return at(node).free; }

    // The GPUs that a gang is placed by: all within one node if it fits one, else as many per node as divide
    // both.
    [[nodiscard]] std::int32_t block_of(std::int32_t gpus) const;
    // How many blocks of that size are free.
    [[nodiscard]] std::int64_t blocks(std::int32_t block) const;
    // Whether a gang could start now.
    [[nodiscard]] bool fits(std::int32_t gpus) const;
    // Whether a gang would fit the empty cluster with all nodes up.
    [[nodiscard]] bool fits_empty(std::int32_t gpus) const;
    // The blocks on the fullest nodes that have room, the first of equals. Nothing if it does not fit.
    [[nodiscard]] std::optional<Placement> find(std::int32_t gpus) const;
    // The same where the GPUs of `own` may be used as well, those nodes first.
    [[nodiscard]] std::optional<Placement> find_with(std::int32_t gpus, const Placement &own) const;

    // Takes what is free, or throws std::logic_error: a scheduler must never give away what is not there.
    // Returns when all of it can be used: `now`, or later when a checkpoint still reads it.
    Time take(const Placement &placement, Time now);
    // Gives back; usable from `ready` on. What belongs to a node that is down is forgotten.
    void release(const Placement &placement, Time now, Time ready);

    // The node's free GPUs are gone; jobs on it must be released by the caller after this.
    void fail(std::int32_t index, Time now);
    void repair(std::int32_t index);

    // GPU time in which nobody held a GPU and a checkpoint still read it, as far as is known now.
    [[nodiscard]] double releasing() const { return releasing_; }

  private:
    struct Pending {
        Time ready;
        std::int32_t gpus;
    };
    struct Node {
        std::int32_t free = 0;
        bool up = true;
        std::vector<Pending> pending; // of the free ones; mostly empty
    };
    [[nodiscard]] const Node &at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }
    [[nodiscard]] Node &at(std::int32_t node) { return nodes_[static_cast<std::size_t>(node)]; }
    void set_free(std::int32_t node, std::int32_t free);
    static void forget_ready(Node &node, Time now);

    std::int32_t gpus_per_node_;
    std::vector<Node> nodes_;
    std::vector<IndexSet> with_free_; // [f]: nodes that are up and have f free
    std::int64_t free_ = 0;
    std::int64_t up_ = 0;
    double releasing_ = 0;
};

} // namespace singularity::simulator
