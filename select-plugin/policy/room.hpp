// SPDX-License-Identifier: GPL-2.0-or-later
// The GPUs that are free, and where a gang fits into them. Finds one block in O(GPUs of a node) and a gang in
// O(its nodes + log leaves); a change costs O(block sizes x log leaves).
//
// Invariants: every node is in the list of its leaf and in the list of its kind for the GPUs that it has
// free; capacity(b, k) is the number of blocks of b that fit into all nodes of the kinds k; a kind's trees
// hold the same by leaf, and in each inner entry the larger of its two children. Nodes that are closed
// (draining) have nothing free, whatever is given back there.
#pragma once

#include "capacities.hpp"
#include "fits.hpp"
#include "select-plugin/policy/snapshot.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::policy {

class Room {
  public:
    static constexpr std::uint32_t kNone = 0xffffffff;

    // All GPUs free on the nodes that are not draining; `blocks` are the block sizes that will be asked for,
    // each once.
    void reset(std::span<const Node> nodes, std::span<const std::uint32_t> blocks);
    // `free` GPUs of each node, as above otherwise.
    void reset(std::span<const Node> nodes, std::span<const std::uint32_t> blocks,
               std::span<const std::uint32_t> free);

    [[nodiscard]] std::uint32_t free(std::uint32_t node) const { return free_[node]; }
    [[nodiscard]] bool open(std::uint32_t node) const { return open_[node] != 0; }
    [[nodiscard]] std::uint64_t idle() const { return idle_; }
    [[nodiscard]] std::uint64_t capacity(std::uint32_t block, Kinds kinds = kAllKinds) const {
        return capacities_.of(kinds, block_index_[block]);
    }
    [[nodiscard]] std::uint32_t most_gpus() const { return most_; }
    [[nodiscard]] std::uint32_t kinds() const { return static_cast<std::uint32_t>(kinds_.size()); }
    // How many blocks of each size fit into so many GPUs.
    [[nodiscard]] std::span<const std::uint32_t> fits(std::uint32_t gpus) const { return fits_.of(gpus); }

    // The GPUs become free or cease to be.
    void release(std::uint32_t node, std::uint32_t gpus) { set(node, free_[node] + gpus); }
    void occupy(std::uint32_t node, std::uint32_t gpus) { set(node, free_[node] - gpus); }

    // Takes `count` blocks on nodes of these kinds and appends where they are, one share for a node; false,
    // and nothing changed, if they do not fit. One block goes where it leaves least; several go under one
    // leaf if one has room, else under few, each to few nodes.
    bool take(std::uint64_t count, std::uint32_t block, Kinds kinds, std::vector<Share> &shares);

    // The nodes of a kind with so many GPUs free, in the order in which lists are searched.
    [[nodiscard]] std::uint32_t first_with(std::uint32_t kind, std::uint32_t gpus) const {
        return kinds_[kind].first[gpus];
    }
    [[nodiscard]] std::uint32_t next_with(std::uint32_t node) const { return links_[node].next; }

  private:
    struct Links {
        std::uint32_t previous, next;           // in the list of the kind
        std::uint32_t leaf_previous, leaf_next; // in the list of the leaf
    };

    // Those of a kind.
    struct Kind {
        std::vector<std::uint32_t> first;  // node, by free GPUs
        std::vector<std::uint32_t> leaves; // in the order of their first nodes
        // By block; of each tree entry 1 is the root, width + place the leaf's that has this place in leaves.
        std::vector<std::vector<std::uint32_t>> trees;
        std::uint32_t width = 1;
    };
    // Of a leaf: in the leaves of its kind.
    struct Place {
        std::uint32_t kind = 0;
        std::uint32_t place = kNone;
    };

    void find_leaves();
    void set(std::uint32_t node, std::uint32_t gpus);
    void link(std::uint32_t node);
    void unlink(std::uint32_t node);
    [[nodiscard]] std::uint32_t &blocks_under(std::uint32_t index, std::uint32_t leaf);
    void set_blocks(std::uint32_t index, std::uint32_t leaf, std::uint32_t blocks);
    [[nodiscard]] static std::uint32_t first_leaf(const Kind &kind, std::uint32_t index, std::uint64_t count);
    [[nodiscard]] std::uint32_t best_leaf(std::uint32_t index, std::uint64_t count, Kinds kinds) const;
    void take_under(std::uint32_t leaf, std::uint64_t count, std::uint32_t block, std::vector<Share> &shares);
    [[nodiscard]] std::uint32_t &leaf_head(std::uint32_t leaf, std::uint32_t gpus) {
        return leaves_[(static_cast<std::size_t>(leaf) * (most_ + 1)) + gpus];
    }

    std::span<const Node> nodes_;
    std::vector<std::uint32_t> free_;
    std::vector<std::uint8_t> open_;
    std::vector<Links> links_;
    std::vector<Kind> kinds_;
    std::vector<std::uint32_t> leaves_; // first node by leaf and free GPUs
    std::vector<Place> places_;         // by leaf
    std::uint32_t most_ = 0;
    std::uint64_t idle_ = 0;
    std::vector<std::uint32_t> blocks_;
    Fits fits_;
    std::array<std::uint32_t, kMostGpusOfNode + 1> block_index_{};
    Capacities capacities_;
};

} // namespace singularity::policy
