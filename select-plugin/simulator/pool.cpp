// SPDX-License-Identifier: GPL-2.0-or-later
#include "pool.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace singularity::simulator {

void IndexSet::insert(std::size_t index) {
    const std::uint64_t bit = std::uint64_t{1} << (index % 64);
    size_ += (words_[index / 64] & bit) == 0 ? 1 : 0;
    words_[index / 64] |= bit;
    summary_[index / 4096] |= std::uint64_t{1} << (index / 64 % 64);
}

void IndexSet::erase(std::size_t index) {
    std::uint64_t &word = words_[index / 64];
    const std::uint64_t bit = std::uint64_t{1} << (index % 64);
    size_ -= (word & bit) != 0 ? 1 : 0;
    word &= ~bit;
    if (word == 0)
        summary_[index / 4096] &= ~(std::uint64_t{1} << (index / 64 % 64));
}

std::optional<std::size_t> IndexSet::first(std::size_t from) const {
    const auto masked = [](std::uint64_t word, std::size_t bit) { return word & (~std::uint64_t{0} << bit); };
    std::size_t word = from / 64;
    if (word >= words_.size())
        return std::nullopt;
    if (const std::uint64_t rest = masked(words_[word], from % 64); rest != 0)
        return (word * 64) + static_cast<std::size_t>(std::countr_zero(rest));
    if (++word >= words_.size())
        return std::nullopt;
    for (std::size_t i = word / 64; i < summary_.size(); ++i) {
        const std::uint64_t rest = i == word / 64 ? masked(summary_[i], word % 64) : summary_[i];
        if (rest != 0) {
            const std::size_t found = (i * 64) + static_cast<std::size_t>(std::countr_zero(rest));
            return (found * 64) + static_cast<std::size_t>(std::countr_zero(words_[found]));
        }
    }
    return std::nullopt;
}

Pool::Pool(std::int32_t nodes, std::int32_t gpus_per_node)
    : gpus_per_node_(gpus_per_node), nodes_(static_cast<std::size_t>(nodes)),
      with_free_(static_cast<std::size_t>(gpus_per_node) + 1, IndexSet(static_cast<std::size_t>(nodes))) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        nodes_[i].free = gpus_per_node;
        with_free_.back().insert(i);
    }
    free_ = up_ = std::int64_t{nodes} * gpus_per_node;
}

void Pool::set_free(std::int32_t node, std::int32_t free) {
    const auto index = static_cast<std::size_t>(node);
    with_free_[static_cast<std::size_t>(nodes_[index].free)].erase(index);
    with_free_[static_cast<std::size_t>(free)].insert(index);
    free_ += free - nodes_[index].free;
    nodes_[index].free = free;
}

void Pool::forget_ready(Node &node, Time now) {
    std::erase_if(node.pending, [now](const Pending &pending) { return pending.ready <= now; });
}

std::int32_t Pool::block_of(std::int32_t gpus) const {
    return gpus <= gpus_per_node_ ? gpus : std::gcd(gpus, gpus_per_node_);
}

std::int64_t Pool::blocks(std::int32_t block) const {
    std::int64_t blocks = 0;
    for (std::int32_t f = gpus_per_node_; f >= block; --f)
        blocks += static_cast<std::int64_t>(with_free_[static_cast<std::size_t>(f)].size()) * (f / block);
    return blocks;
}

bool Pool::fits(std::int32_t gpus) const {
    const std::int32_t block = block_of(gpus);
    return gpus <= free_ && blocks(block) >= gpus / block;
}

bool Pool::fits_empty(std::int32_t gpus) const {
    const std::int32_t block = block_of(gpus);
    return gpus / block <= static_cast<std::int64_t>(nodes_.size()) * (gpus_per_node_ / block);
}

std::optional<Placement> Pool::find(std::int32_t gpus) const {
    if (!fits(gpus))
        return std::nullopt;
    return find_with(gpus, {});
}

std::optional<Placement> Pool::find_with(std::int32_t gpus, const Placement &own) const {
    const std::int32_t block = block_of(gpus);
    std::int32_t blocks = gpus / block;
    Placement placement;
    for (const Share &share : own) {
        const std::int32_t taken = std::min(blocks, (free_on(share.node) + share.gpus) / block);
        if (taken > 0)
            placement.push_back({share.node, taken * block});
        blocks -= taken;
    }
    // A gang larger than a node takes whole nodes first where it can; a smaller one the smallest gap that
    // holds it.
    const bool large = gpus > gpus_per_node_;
    for (std::int32_t step = 0; step <= gpus_per_node_ - block && blocks > 0; ++step) {
        const std::int32_t f = large ? gpus_per_node_ - step : block + step;
        const IndexSet &set = with_free_[static_cast<std::size_t>(f)];
        for (auto node = set.first(); node && blocks > 0; node = set.first(*node + 1)) {
            if (std::ranges::find(own, static_cast<std::int32_t>(*node), &Share::node) != own.end())
                continue;
            const std::int32_t taken = std::min(blocks, f / block);
            placement.push_back({static_cast<std::int32_t>(*node), taken * block});
            blocks -= taken;
        }
    }
    return blocks > 0 ? std::nullopt : std::optional(std::move(placement));
}

Time Pool::take(const Placement &placement, Time now) {
    Time ready = now;
    for (const Share &share : placement) {
        Node &node = at(share.node);
        if (!node.up || share.gpus < 1 || share.gpus > node.free) {
            throw std::logic_error(fmt::format("{} GPUs were given away on node {}, which has {} free",
                                               share.gpus, share.node, node.up ? node.free : 0));
        }
        forget_ready(node, now);
        std::int32_t pending = 0;
        for (const Pending &part : node.pending)
            pending += part.gpus;
        std::ranges::sort(node.pending, {}, &Pending::ready);
        // What can be used at once goes first, then what can be used soonest.
        for (std::int32_t wanted = share.gpus - (node.free - pending); wanted > 0;) {
            Pending &part = node.pending.front();
            const std::int32_t taken = std::min(wanted, part.gpus);
            ready = std::max(ready, part.ready);
            releasing_ -= static_cast<double>(part.ready - now) * taken;
            wanted -= taken;
            part.gpus -= taken;
            if (part.gpus == 0)
                node.pending.erase(node.pending.begin());
        }
        set_free(share.node, node.free - share.gpus);
    }
    return ready;
}

void Pool::release(const Placement &placement, Time now, Time ready) {
    for (const Share &share : placement) {
        Node &node = at(share.node);
        if (!node.up)
            continue;
        if (ready > now) {
            forget_ready(node, now);
            node.pending.push_back({ready, share.gpus});
            releasing_ += static_cast<double>(ready - now) * share.gpus;
        }
        set_free(share.node, node.free + share.gpus);
    }
}

void Pool::fail(std::int32_t index, Time now) {
    Node &node = at(index);
    forget_ready(node, now);
    for (const Pending &part : node.pending)
        releasing_ -= static_cast<double>(part.ready - now) * part.gpus;
    node.pending.clear();
    with_free_[static_cast<std::size_t>(node.free)].erase(static_cast<std::size_t>(index));
    free_ -= node.free;
    node.free = 0;
    node.up = false;
    up_ -= gpus_per_node_;
}

void Pool::repair(std::int32_t index) {
    Node &node = at(index);
    node.up = true;
    node.free = gpus_per_node_;
    with_free_[static_cast<std::size_t>(gpus_per_node_)].insert(static_cast<std::size_t>(index));
    free_ += gpus_per_node_;
    up_ += gpus_per_node_;
}

} // namespace singularity::simulator
