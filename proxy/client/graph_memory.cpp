// SPDX-License-Identifier: GPL-2.0-or-later
#include "graph_memory.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace singularity::client {

namespace {

struct GraphBlock {
    const Context *context = nullptr;
    bool allocated = false;
};

struct GraphStep {
    std::uint64_t address = 0;
    bool allocates = false;
};

struct GraphSteps {
    std::vector<GraphStep> list; // in the order in which they were added
    std::uint64_t flags = 0;
};

struct GraphMemory {
    std::mutex lock;
    std::atomic<bool> any = false;
    std::map<std::uint64_t, GraphBlock> blocks; // by address
    std::map<std::uint64_t, GraphSteps> graphs; // and executable ones, by handle
};

GraphMemory &graph_memory() {
    static auto &instance = *std::make_unique<GraphMemory>().release(); // see process()
    return instance;
}

} // namespace

bool any_graph_memory() { return graph_memory().any.load(std::memory_order_acquire); }

void graph_allocates(std::uint64_t graph, const Context &context, std::uint64_t address) {
    auto &all = graph_memory();
    const std::scoped_lock lock(all.lock);
    all.blocks[address] = {.context = &context, .allocated = false};
    all.graphs[graph].list.push_back({.address = address, .allocates = true});
    all.any.store(true, std::memory_order_release);
}

void graph_frees(std::uint64_t graph, std::uint64_t address) {
    auto &all = graph_memory();
    const std::scoped_lock lock(all.lock);
    if (all.blocks.contains(address))
        all.graphs[graph].list.push_back({.address = address, .allocates = false});
}

void share_graph_memory(std::uint64_t from, std::uint64_t to, std::uint64_t flags) {
    if (!any_graph_memory())
        return;
    auto &all = graph_memory();
    const std::scoped_lock lock(all.lock);
    const auto found = all.graphs.find(from);
    if (found == all.graphs.end()) {
        all.graphs.erase(to);
        return;
    }
    auto steps = found->second;
    steps.flags = flags;
    all.graphs[to] = std::move(steps);
}

void update_graph_memory(std::uint64_t graph, std::uint64_t executable) {
    if (!any_graph_memory())
        return;
    auto &all = graph_memory();
    const std::scoped_lock lock(all.lock);
    if (const auto from = all.graphs.find(graph); from != all.graphs.end())
        all.graphs[executable].list = std::vector(from->second.list);
    else
        all.graphs.erase(executable);
}

void forget_graph(std::uint64_t graph) {
    if (!any_graph_memory())
        return;
    auto &all = graph_memory();
    const std::scoped_lock lock(all.lock);
    all.graphs.erase(graph);
}

void forget_graph_memory(const Context &context) {
    if (!any_graph_memory())
        return;
    auto &all = graph_memory();
    const std::scoped_lock lock(all.lock);
    std::erase_if(all.blocks, [&](const auto &entry) { return entry.second.context == &context; });
    all.any.store(!all.blocks.empty(), std::memory_order_release);
}

CUresult launch_graph_memory(std::uint64_t executable) {
    auto &all = graph_memory();
    const std::scoped_lock lock(all.lock);
    const auto found = all.graphs.find(executable);
    if (found == all.graphs.end())
        return CUDA_SUCCESS;
    const auto &steps = found->second;
    const auto still = [&](const GraphStep &step) {
        const auto block = all.blocks.find(step.address);
        return step.allocates && block != all.blocks.end() && block->second.allocated;
    };
    if ((steps.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0 &&
        std::ranges::any_of(steps.list, still))
        return CUDA_ERROR_INVALID_VALUE;
    for (const auto &step : steps.list)
        if (const auto block = all.blocks.find(step.address); block != all.blocks.end())
            block->second.allocated = step.allocates;
    return CUDA_SUCCESS;
}

std::optional<bool> graph_memory_at(std::uint64_t address) {
    if (!any_graph_memory())
        return std::nullopt;
    auto &all = graph_memory();
    const std::scoped_lock lock(all.lock);
    const auto block = all.blocks.find(address);
    return block == all.blocks.end() ? std::nullopt : std::optional(block->second.allocated);
}

bool end_graph_memory(std::uint64_t address) {
    auto &all = graph_memory();
    const std::scoped_lock lock(all.lock);
    const auto block = all.blocks.find(address);
    return block != all.blocks.end() && std::exchange(block->second.allocated, false);
}

} // namespace singularity::client
