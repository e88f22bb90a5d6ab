// SPDX-License-Identifier: GPL-2.0-or-later
#include "graph_parts.hpp"

#include <algorithm>
#include <unordered_map>

namespace singularity::proxyd {

namespace {

constexpr std::size_t kNoCollective = ~std::size_t{0};

struct Place {
    std::vector<std::size_t> from, to; // places of its neighbours
    std::size_t collective = kNoCollective;
    std::size_t part = 0;
    std::size_t after = 0; // collectives that it, or what it comes after, waits for
};

// An order that the edges allow; shorter than the places where there is none.
std::vector<std::size_t> ordered(const std::vector<Place> &places) {
    std::vector<std::size_t> waits(places.size());
    std::vector<std::size_t> order;
    for (std::size_t at = 0; at < places.size(); ++at)
        if ((waits[at] = places[at].from.size()) == 0)
            order.push_back(at);
    for (std::size_t done = 0; done < order.size(); ++done)
        for (const auto next : places[order[done]].to)
            if (--waits[next] == 0)
                order.push_back(next);
    return order;
}

} // namespace

std::optional<std::vector<GraphPart>> parts_of(std::span<const std::uint64_t> nodes,
                                               std::span<const GraphEdge> edges,
                                               std::span<const std::uint64_t> collectives) {
    std::vector<Place> places(nodes.size());
    std::unordered_map<std::uint64_t, std::size_t> at;
    for (std::size_t index = 0; index < nodes.size(); ++index)
        at.emplace(nodes[index], index);
    for (const auto &[from, to] : edges) {
        const auto first = at.find(from);
        const auto second = at.find(to);
        if (first == at.end() || second == at.end())
            return std::nullopt;
        places[first->second].to.push_back(second->second);
        places[second->second].from.push_back(first->second);
    }
    for (std::size_t index = 0; index < collectives.size(); ++index) {
        const auto found = at.find(collectives[index]);
        if (found == at.end())
            return std::nullopt;
        places[found->second].collective = index;
    }
    const auto order = ordered(places);
    if (order.size() != places.size())
        return std::nullopt;
    for (const auto index : order) {
        auto &place = places[index];
        for (const auto before : place.from) {
            const auto &earlier = places[before];
            place.after = std::max(place.after, earlier.collective == kNoCollective ? earlier.after
                                                                                    : earlier.collective + 1);
        }
        if (place.collective == kNoCollective)
            continue;
        if (place.after > place.collective)
            return std::nullopt;
        place.after = place.collective; // they are issued one after the other
    }
    std::vector<GraphPart> parts(collectives.size() + 1);
    for (auto index = order.rbegin(); index != order.rend(); ++index) {
        auto &place = places[*index];
        place.part = collectives.size();
        for (const auto behind : place.to) {
            const auto &later = places[behind];
            place.part =
                std::min(place.part, later.collective == kNoCollective ? later.part : later.collective);
        }
    }
    for (std::size_t index = 0; index < places.size(); ++index) {
        const auto &place = places[index];
        if (place.collective != kNoCollective)
            continue;
        auto &part = parts[place.part];
        part.nodes.push_back(nodes[index]);
        part.after = std::max(part.after, place.after);
    }
    return parts;
}

} // namespace singularity::proxyd
