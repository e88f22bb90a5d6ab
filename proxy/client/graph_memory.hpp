// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that graphs allocate. The client has it from the moment its node is made until the context ends, at
// one address; the daemon's graph knows nothing of it. What is kept here is what the driver would say: a
// launch allocates it, and it must be free again before the next one.
#pragma once

#include "context.hpp"

#include <cstdint>
#include <optional>

namespace singularity::client {

// Nodes of a graph, or what its capture has made of allocations and frees.
void graph_allocates(std::uint64_t graph, const Context &context, std::uint64_t address);
void graph_frees(std::uint64_t graph, std::uint64_t address);
// An executable graph, or another copy, does what the graph does.
void share_graph_memory(std::uint64_t from, std::uint64_t to, std::uint64_t flags);
// An executable graph has become what the graph is; its flags stay.
void update_graph_memory(std::uint64_t graph, std::uint64_t executable);
// A graph or executable graph has ended.
void forget_graph(std::uint64_t graph);
// The context's memory has ended.
void forget_graph_memory(const Context &context);

// Whether a launch may do what it does to memory; then it has.
[[nodiscard]] CUresult launch_graph_memory(std::uint64_t executable);
// Whether any graph has memory: nothing else needs to be asked then.
[[nodiscard]] bool any_graph_memory();
// Of memory of a graph that begins there: whether it is allocated.
[[nodiscard]] std::optional<bool> graph_memory_at(std::uint64_t address);
// A call frees it; false: it was not allocated.
[[nodiscard]] bool end_graph_memory(std::uint64_t address);

} // namespace singularity::client
