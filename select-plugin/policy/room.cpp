// SPDX-License-Identifier: GPL-2.0-or-later
#include "room.hpp"

#include <algorithm>
#include <bit>

namespace singularity::policy {

void Room::reset(std::span<const Node> nodes, std::span<const std::uint32_t> blocks) {
    std::vector<std::uint32_t> all(nodes.size());
    std::ranges::transform(nodes, all.begin(), &Node::gpus);
    reset(nodes, blocks, all);
}

void Room::reset(std::span<const Node> nodes, std::span<const std::uint32_t> blocks,
                 std::span<const std::uint32_t> free) {
    nodes_ = nodes;
    blocks_.assign(blocks.begin(), blocks.end());
    block_index_.fill(0);
    for (std::uint32_t index = 0; index < blocks_.size(); ++index)
        block_index_[blocks_[index]] = index;
    fits_.reset(blocks_);
    std::uint32_t leaves = 0;
    most_ = 0;
    for (const Node &node : nodes) {
        most_ = std::max(most_, node.gpus);
        leaves = std::max(leaves, node.leaf + 1);
    }
    free_.resize(nodes.size());
    open_.resize(nodes.size());
    links_.resize(nodes.size());
    cluster_.assign(most_ + 1, kNone);
    leaves_.assign(static_cast<std::size_t>(leaves) * (most_ + 1), kNone);
    width_ = std::bit_ceil(std::max(leaves, 1U));
    capacity_.assign(blocks_.size(), 0);
    trees_.resize(blocks_.size());
    for (auto &tree : trees_)
        tree.assign(std::size_t{2} * width_, 0);
    idle_ = 0;
    // From the last to the first: lists begin with the lowest index.
    for (std::size_t left = nodes.size(); left > 0; --left) {
        const auto node = static_cast<std::uint32_t>(left - 1);
        open_[node] = nodes[node].draining ? 0 : 1;
        free_[node] = nodes[node].draining ? 0 : free[node];
        idle_ += free_[node];
        link(node);
        const auto fit = fits(free_[node]);
        for (std::size_t index = 0; index < fit.size(); ++index) {
            capacity_[index] += fit[index];
            trees_[index][width_ + nodes[node].leaf] += fit[index];
        }
    }
    for (auto &tree : trees_) {
        for (std::size_t entry = width_ - 1; entry > 0; --entry)
            tree[entry] = std::max(tree[2 * entry], tree[(2 * entry) + 1]);
    }
}

void Room::link(std::uint32_t node) {
    std::uint32_t &head = cluster_[free_[node]];
    std::uint32_t &under = leaf_head(nodes_[node].leaf, free_[node]);
    links_[node] = {.previous = kNone, .next = head, .leaf_previous = kNone, .leaf_next = under};
    if (head != kNone)
        links_[head].previous = node;
    if (under != kNone)
        links_[under].leaf_previous = node;
    head = node;
    under = node;
}

void Room::unlink(std::uint32_t node) {
    const Links &links = links_[node];
    (links.previous == kNone ? cluster_[free_[node]] : links_[links.previous].next) = links.next;
    if (links.next != kNone)
        links_[links.next].previous = links.previous;
    (links.leaf_previous == kNone ? leaf_head(nodes_[node].leaf, free_[node])
                                  : links_[links.leaf_previous].leaf_next) = links.leaf_next;
    if (links.leaf_next != kNone)
        links_[links.leaf_next].leaf_previous = links.leaf_previous;
}

void Room::set_blocks(std::uint32_t index, std::uint32_t leaf, std::uint32_t blocks) {
    auto &tree = trees_[index];
    std::size_t entry = std::size_t{width_} + leaf;
    tree[entry] = blocks;
    while (entry > 1) {
        entry /= 2;
        const std::uint32_t larger = std::max(tree[2 * entry], tree[(2 * entry) + 1]);
        if (tree[entry] == larger)
            break;
        tree[entry] = larger;
    }
}

void Room::set(std::uint32_t node, std::uint32_t gpus) {
    if (open_[node] == 0 || gpus == free_[node])
        return;
    const std::uint32_t before = free_[node];
    unlink(node);
    free_[node] = gpus;
    link(node);
    idle_ = idle_ + gpus - before;
    const std::uint32_t leaf = nodes_[node].leaf;
    const auto had = fits(before);
    const auto has = fits(gpus);
    for (std::uint32_t index = 0; index < blocks_.size(); ++index) {
        if (had[index] == has[index])
            continue;
        capacity_[index] = capacity_[index] + has[index] - had[index];
        set_blocks(index, leaf, trees_[index][width_ + leaf] + has[index] - had[index]);
    }
}

std::uint32_t Room::first_leaf(std::uint32_t index, std::uint64_t count) const {
    const auto &tree = trees_[index];
    if (tree[1] < count)
        return kNone;
    std::size_t entry = 1;
    while (entry < width_)
        entry = (2 * entry) + (tree[2 * entry] >= count ? 0 : 1);
    return static_cast<std::uint32_t>(entry) - width_;
}

std::uint32_t Room::largest_leaf(std::uint32_t index) const { return first_leaf(index, trees_[index][1]); }

void Room::take_under(std::uint32_t leaf, std::uint64_t count, std::uint32_t block,
                      std::vector<Share> &shares) {
    std::uint32_t most = most_;
    while (count > 0) {
        // The last piece goes where it leaves least; before that, the nodes with most.
        std::uint32_t node = kNone;
        if (count * block <= most) {
            auto gpus = static_cast<std::uint32_t>(count * block);
            while (gpus <= most && leaf_head(leaf, gpus) == kNone)
                ++gpus;
            if (gpus <= most)
                node = leaf_head(leaf, gpus);
        }
        while (node == kNone) {
            node = leaf_head(leaf, most);
            if (node == kNone)
                --most;
        }
        const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, free_[node] / block));
        shares.push_back({.node = node, .gpus = blocks * block});
        occupy(node, blocks * block);
        count -= blocks;
    }
}

bool Room::take(std::uint64_t count, std::uint32_t block, std::vector<Share> &shares) {
    const std::uint32_t index = block_index_[block];
    if (count == 0 || capacity_[index] < count)
        return count == 0;
    if (count == 1) {
        std::uint32_t gpus = block;
        while (cluster_[gpus] == kNone)
            ++gpus;
        shares.push_back({.node = cluster_[gpus], .gpus = block});
        occupy(cluster_[gpus], block);
        return true;
    }
    while (count > 0) {
        const std::uint32_t fits = first_leaf(index, count);
        const std::uint32_t leaf = fits == kNone ? largest_leaf(index) : fits;
        const std::uint64_t here = std::min<std::uint64_t>(count, trees_[index][width_ + leaf]);
        take_under(leaf, here, block, shares);
        count -= here;
    }
    return true;
}

} // namespace singularity::policy
