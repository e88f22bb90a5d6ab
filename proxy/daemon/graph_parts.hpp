// SPDX-License-Identifier: GPL-2.0-or-later
// A graph with collectives, cut into what the device does between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace singularity::proxyd {

struct GraphPart {
    std::vector<std::uint64_t> nodes; // may be none
    // So many collectives have to be complete before it; those that follow need not.
    std::size_t after = 0;
};

using GraphEdge = std::pair<std::uint64_t, std::uint64_t>; // from, to

// Part n comes before collective n and behind part n - 1; the last one comes before none. A node is in the
// first part that something in front of a collective needs, in the last one where no collective needs it.
// collectives: nodes, in the order in which they are to be issued. nullopt: the edges do not allow that
// order.
[[nodiscard]] std::optional<std::vector<GraphPart>> parts_of(std::span<const std::uint64_t> nodes,
                                                             std::span<const GraphEdge> edges,
                                                             std::span<const std::uint64_t> collectives);

} // namespace singularity::proxyd
