// SPDX-License-Identifier: GPL-2.0-or-later
#include "demand.hpp"

#include "common/slurm/gres.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace singularity::planner {
namespace {

constexpr std::string_view kPartition = "partition ";
constexpr std::string_view kType = "type ";
constexpr std::string_view kFeature = "feature ";

std::string label(std::string_view what, std::string_view name) { return fmt::format("{}{}", what, name); }

std::vector<std::string> split(std::string_view list, char separator) {
    std::vector<std::string> names;
    for (std::size_t at = 0; at <= list.size() && !list.empty();) {
        const auto end = std::min(list.find(separator, at), list.size());
        names.emplace_back(list.substr(at, end - at));
        at = end + 1;
    }
    return names;
}

bool has_all(const Labels &labels, std::string_view what, const std::vector<std::string> &names) {
    return std::ranges::all_of(names,
                               [&](const std::string &name) { return labels.contains(label(what, name)); });
}
bool has_one(const Labels &labels, std::string_view what, const std::vector<std::string> &names) {
    return std::ranges::any_of(names,
                               [&](const std::string &name) { return labels.contains(label(what, name)); });
}

bool is_met(const Demand &demand, const Labels &labels) {
    return has_one(labels, kPartition, demand.partitions) &&
           (demand.gpu_type.empty() || labels.contains(label(kType, demand.gpu_type))) &&
           (demand.all_features ? has_all(labels, kFeature, demand.features)
                                : has_one(labels, kFeature, demand.features));
}

void add_labels(Labels &labels, std::string_view what, const std::vector<std::string> &names) {
    for (const auto &name : names)
        labels.insert(label(what, name));
}

} // namespace

Demand demand_of(const slurm::Job &job) {
    Demand demand;
    demand.partitions = split(job.partition, ',');
    const auto types = slurm::gpu_types_wished(job.wishes.gpus);
    if (types.size() > 1)
        demand.beyond = "it asks for GPUs of several types";
    else if (!types.empty())
        demand.gpu_type = types.front();
    // Numbers of nodes, one of several racks, and the like are in other characters.
    constexpr std::string_view kBeyond = "[]()*!,";
    const auto &features = job.features;
    demand.all_features = features.find('|') == std::string::npos;
    if (features.find_first_of(kBeyond) != std::string::npos ||
        (!demand.all_features && features.find('&') != std::string::npos))
        demand.beyond =
            fmt::format("its --constraint={} is more than names with & or with | between them", features);
    else
        demand.features = split(features, demand.all_features ? '&' : '|');
    return demand;
}

Labels labels_in(std::span<const slurm::Job> jobs) {
    Labels out;
    for (const auto &job : jobs) {
        const auto demand = demand_of(job);
        add_labels(out, kPartition, demand.partitions);
        add_labels(out, kFeature, demand.features);
        if (!demand.gpu_type.empty())
            out.insert(label(kType, demand.gpu_type));
    }
    return out;
}

std::uint32_t NodeKinds::kind_of(const slurm::Node &node) {
    Labels all;
    add_labels(all, kPartition, node.partitions);
    add_labels(all, kType, node.gpu_types);
    add_labels(all, kFeature, node.features);
    Labels labels;
    std::ranges::set_intersection(all, *demanded_, std::inserter(labels, labels.end()));
    const auto next =
        std::min<std::uint32_t>(static_cast<std::uint32_t>(kinds_.size()), policy::kMostKinds - 1);
    const auto kind = kinds_.emplace(labels, next).first->second;
    if (kind >= labels_.size())
        labels_.emplace_back();
    labels_[kind].merge(labels);
    return kind;
}

policy::Kinds NodeKinds::kinds_of(const Demand &demand) const {
    policy::Kinds kinds = 0;
    for (std::size_t kind = 0; kind < labels_.size(); ++kind)
        kinds |= is_met(demand, labels_[kind]) ? policy::Kinds{1} << kind : 0;
    return kinds;
}

} // namespace singularity::planner
