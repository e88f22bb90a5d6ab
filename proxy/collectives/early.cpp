// SPDX-License-Identifier: GPL-2.0-or-later
#include "early.hpp"

#include <utility>

namespace singularity::collectives {

void Early::here(const ProcessId &from, Instance instance) {
    if (here_.size() < kMost)
        here_.emplace(from, instance);
}

void Early::area(const ProcessId &from, Instance instance, std::uint32_t rank, UniqueFd memory) {
    if (areas_.size() < kMost && rank < kMostMembers)
        areas_.insert_or_assign({from, instance, rank}, std::move(memory));
}

void Early::failed(const ProcessId &from, Instance instance, std::string text) {
    end({.from = from, .instance = instance, .lost = false, .text = std::move(text)});
}

void Early::lost(const ProcessId &from, const std::string &why) {
    std::set<Instance> spoken_of;
    std::erase_if(here_, [&](const auto &entry) {
        if (entry.first == from)
            spoken_of.insert(entry.second);
        return entry.first == from;
    });
    std::erase_if(areas_, [&](const auto &entry) {
        if (std::get<0>(entry.first) == from)
            spoken_of.insert(std::get<1>(entry.first));
        return std::get<0>(entry.first) == from;
    });
    for (const auto instance : spoken_of)
        end({.from = from, .instance = instance, .lost = true, .text = why});
}

void Early::end(End end) {
    if (ends_.size() == kMost)
        ends_.pop_front();
    ends_.push_back(std::move(end));
}

Early::Said Early::take(const ProcessId &from, Instance instance) {
    Said said{.here = here_.erase({from, instance}) != 0, .areas = {}, .failed = {}, .lost = {}};
    for (auto at = areas_.lower_bound({from, instance, 0});
         at != areas_.end() && std::get<0>(at->first) == from && std::get<1>(at->first) == instance;
         at = areas_.erase(at))
        said.areas.emplace(std::get<2>(at->first), std::move(at->second));
    for (auto end = ends_.begin(); end != ends_.end();) {
        if (end->from != from || end->instance != instance) {
            ++end;
            continue;
        }
        (end->lost ? said.lost : said.failed) = std::move(end->text);
        end = ends_.erase(end);
    }
    return said;
}

} // namespace singularity::collectives
