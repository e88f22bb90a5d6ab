// SPDX-License-Identifier: GPL-2.0-or-later
// What a job demands of its nodes: partitions, GPUs of a type, features. Nodes are of one kind if they meet
// the same demands of the jobs that there are. Pure.
#pragma once

#include "common/slurm/controller.hpp"
#include "select-plugin/policy/snapshot.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace singularity::planner {

struct Demand {
    std::vector<std::string> partitions; // one of them
    std::string gpu_type;                // empty: any
    std::vector<std::string> features;   // all of them, or one
    bool all_features = true;
    std::string beyond; // why nobody here can tell which nodes meet it; empty: that is all it demands
};
[[nodiscard]] Demand demand_of(const slurm::Job &job);

// "partition gpu", "type a100", "feature ib": what nodes have, and jobs demand.
using Labels = std::set<std::string>;
[[nodiscard]] Labels labels_in(std::span<const slurm::Job> jobs);

// The kinds of the nodes of a pool, in the order in which they are shown to it.
class NodeKinds {
  public:
    // That matter: what nobody demands makes no difference between nodes.
    explicit NodeKinds(const Labels &demanded) : demanded_(&demanded) {}

    // Those beyond what the policy can tell apart are taken for one, that has all their labels.
    [[nodiscard]] std::uint32_t kind_of(const slurm::Node &node);
    // Of those shown, who meet the demand.
    [[nodiscard]] policy::Kinds kinds_of(const Demand &demand) const;

  private:
    const Labels *demanded_;
    std::map<Labels, std::uint32_t> kinds_;
    std::vector<Labels> labels_; // by kind
};

} // namespace singularity::planner
