// SPDX-License-Identifier: GPL-2.0-or-later
// The GPUs that are free, and where a gang fits into them. Finds one block in O(GPUs of a node) and a gang in
// O(its nodes + log leaves); a change costs O(block sizes x log leaves).
//
// Invariants: every node is in the list of its leaf and in the list of the cluster for the GPUs that it has
// free; capacity(b) is the number of blocks of b that fit into all nodes; trees_ holds the same by leaf, and
// in each inner entry the larger of its two children. Nodes that are closed (draining) have nothing free,
// whatever is given back there.
#pragma once

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
    [[nodiscard]] std::uint64_t capacity(std::uint32_t block) const { return capacity_[block_index_[block]]; }
    [[nodiscard]] std::uint32_t most_gpus() const { return most_; }
    // How many blocks of each size fit into so many GPUs.
    [[nodiscard]] std::span<const std::uint32_t> fits(std::uint32_t gpus) const { return fits_.of(gpus); }

    // The GPUs become free or cease to be.
    void release(std::uint32_t node, std::uint32_t gpus) { set(node, free_[node] + gpus); }
    void occupy(std::uint32_t node, std::uint32_t gpus) { set(node, free_[node] - gpus); }

    // Takes `count` blocks and appends where they are, one share for a node; false, and nothing changed, if
    // they do not fit. One block goes where it leaves least; several go under one leaf if one has room, else
    // under few, each to few nodes.
    bool take(std::uint64_t count, std::uint32_t block, std::vector<Share> &shares);

    // The nodes with so many GPUs free, in the order in which lists are searched.
    [[nodiscard]] std::uint32_t first_with(std::uint32_t gpus) const { return cluster_[gpus]; }
    [[nodiscard]] std::uint32_t next_with(std::uint32_t node) const { return links_[node].next; }

  private:
    struct Links {
        std::uint32_t previous, next;           // in the list of the cluster
        std::uint32_t leaf_previous, leaf_next; // in the list of the leaf
    };

    void set(std::uint32_t node, std::uint32_t gpus);
    void link(std::uint32_t node);
    void unlink(std::uint32_t node);
    void set_blocks(std::uint32_t index, std::uint32_t leaf, std::uint32_t blocks);
    [[nodiscard]] std::uint32_t first_leaf(std::uint32_t index, std::uint64_t count) const;
    [[nodiscard]] std::uint32_t largest_leaf(std::uint32_t index) const;
    void take_under(std::uint32_t leaf, std::uint64_t count, std::uint32_t block, std::vector<Share> &shares);
    [[nodiscard]] std::uint32_t &leaf_head(std::uint32_t leaf, std::uint32_t gpus) {
        return leaves_[(static_cast<std::size_t>(leaf) * (most_ + 1)) + gpus];
    }

    std::span<const Node> nodes_;
    std::vector<std::uint32_t> free_;
    std::vector<std::uint8_t> open_;
    std::vector<Links> links_;
    std::vector<std::uint32_t> cluster_; // first node by free GPUs
    std::vector<std::uint32_t> leaves_;  // first node by leaf and free GPUs
    std::uint32_t most_ = 0;
    std::uint64_t idle_ = 0;
    std::vector<std::uint32_t> blocks_;
    Fits fits_;
    std::array<std::uint32_t, kMostGpusOfNode + 1> block_index_{};
    std::vector<std::uint64_t> capacity_; // by block
    std::vector<std::vector<std::uint32_t>>
        trees_; // by block; entry 1 is the root, width_ + leaf the leaf's own
    std::uint32_t width_ = 1;
};

} // namespace singularity::policy
