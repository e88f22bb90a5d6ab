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
    most_ = 0;
    for (const Node &node : nodes)
        most_ = std::max(most_, node.gpus);
    free_.resize(nodes.size());
    open_.resize(nodes.size());
    links_.resize(nodes.size());
    find_leaves();
    capacities_.reset(kinds_.size(), blocks_.size());
    idle_ = 0;
    // From the last to the first: lists begin with the lowest index.
    for (std::size_t left = nodes.size(); left > 0; --left) {
        const auto node = static_cast<std::uint32_t>(left - 1);
        open_[node] = nodes[node].draining ? 0 : 1;
        free_[node] = nodes[node].draining ? 0 : free[node];
        idle_ += free_[node];
        link(node);
        const auto fit = fits(free_[node]);
        capacities_.add(nodes[node].kind, fit);
        for (std::uint32_t index = 0; index < fit.size(); ++index)
            blocks_under(index, nodes[node].leaf) += fit[index];
    }
    for (Kind &kind : kinds_) {
        for (auto &tree : kind.trees) {
            for (std::size_t entry = kind.width - 1; entry > 0; --entry)
                tree[entry] = std::max(tree[2 * entry], tree[(2 * entry) + 1]);
        }
    }
}

// Which there are of each kind, with nothing under them yet.
void Room::find_leaves() {
    std::uint32_t leaves = 0;
    std::uint32_t kinds = 0;
    for (const Node &node : nodes_) {
        leaves = std::max(leaves, node.leaf + 1);
        kinds = std::max(kinds, node.kind + 1);
    }
    kinds_.resize(kinds);
    for (Kind &kind : kinds_) {
        kind.first.assign(most_ + 1, kNone);
        kind.leaves.clear();
    }
    leaves_.assign(static_cast<std::size_t>(leaves) * (most_ + 1), kNone);
    places_.assign(leaves, {});
    for (const Node &node : nodes_) {
        if (places_[node.leaf].place != kNone)
            continue;
        auto &of_kind = kinds_[node.kind].leaves;
        places_[node.leaf] = {.kind = node.kind, .place = static_cast<std::uint32_t>(of_kind.size())};
        of_kind.push_back(node.leaf);
    }
    for (Kind &kind : kinds_) {
        kind.width = std::bit_ceil(std::max(static_cast<std::uint32_t>(kind.leaves.size()), 1U));
        kind.trees.resize(blocks_.size());
        for (auto &tree : kind.trees)
            tree.assign(std::size_t{2} * kind.width, 0);
    }
}

void Room::link(std::uint32_t node) {
    std::uint32_t &head = kinds_[nodes_[node].kind].first[free_[node]];
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
    (links.previous == kNone ? kinds_[nodes_[node].kind].first[free_[node]] : links_[links.previous].next) =
        links.next;
    if (links.next != kNone)
        links_[links.next].previous = links.previous;
    (links.leaf_previous == kNone ? leaf_head(nodes_[node].leaf, free_[node])
                                  : links_[links.leaf_previous].leaf_next) = links.leaf_next;
    if (links.leaf_next != kNone)
        links_[links.leaf_next].leaf_previous = links.leaf_previous;
}

std::uint32_t &Room::blocks_under(std::uint32_t index, std::uint32_t leaf) {
    const auto [kind, place] = places_[leaf];
    return kinds_[kind].trees[index][std::size_t{kinds_[kind].width} + place];
}

void Room::set_blocks(std::uint32_t index, std::uint32_t leaf, std::uint32_t blocks) {
    const auto [kind, place] = places_[leaf];
    auto &tree = kinds_[kind].trees[index];
    std::size_t entry = std::size_t{kinds_[kind].width} + place;
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
    capacities_.change(nodes_[node].kind, had, has);
    for (std::uint32_t index = 0; index < blocks_.size(); ++index) {
        if (had[index] != has[index])
            set_blocks(index, leaf, blocks_under(index, leaf) + has[index] - had[index]);
    }
}

// The first that has room for so many blocks.
std::uint32_t Room::first_leaf(const Kind &kind, std::uint32_t index, std::uint64_t count) {
    const auto &tree = kind.trees[index];
    if (tree[1] < count)
        return kNone;
    std::size_t entry = 1;
    while (entry < kind.width)
        entry = (2 * entry) + (tree[2 * entry] >= count ? 0 : 1);
    return kind.leaves[entry - kind.width];
}

// The first that has room for so many blocks, or else the first of those that have most.
std::uint32_t Room::best_leaf(std::uint32_t index, std::uint64_t count, Kinds kinds) const {
    std::uint64_t most = 0;
    for (std::uint32_t kind = 0; kind < kinds_.size(); ++kind) {
        if (is_among(kind, kinds))
            most = std::max<std::uint64_t>(most, kinds_[kind].trees[index][1]);
    }
    std::uint32_t best = kNone;
    for (std::uint32_t kind = 0; kind < kinds_.size(); ++kind) {
        if (is_among(kind, kinds))
            best = std::min(best, first_leaf(kinds_[kind], index, std::min(count, most)));
    }
    return best;
}

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

bool Room::take(std::uint64_t count, std::uint32_t block, Kinds kinds, std::vector<Share> &shares) {
    const std::uint32_t index = block_index_[block];
    if (count == 0 || capacities_.of(kinds, index) < count)
        return count == 0;
    if (count == 1) {
        std::uint32_t node = kNone;
        for (std::uint32_t gpus = block; node == kNone; ++gpus) {
            for (std::uint32_t kind = 0; kind < kinds_.size(); ++kind)
                node = is_among(kind, kinds) ? std::min(node, first_with(kind, gpus)) : node;
        }
        shares.push_back({.node = node, .gpus = block});
        occupy(node, block);
        return true;
    }
    while (count > 0) {
        const std::uint32_t leaf = best_leaf(index, count, kinds);
        const std::uint64_t here = std::min<std::uint64_t>(count, blocks_under(index, leaf));
        take_under(leaf, here, block, shares);
        count -= here;
    }
    return true;
}

} // namespace singularity::policy
