// SPDX-License-Identifier: GPL-2.0-or-later
// One look at the cluster: what slurmctld says, as one snapshot for each pool of nodes. Nodes that share a
// partition are one pool, so where all nodes are in one partition, or the partitions overlap, there is one.
// Within it nodes are of kinds (demand.hpp). Pure.
#pragma once

#include "common/slurm/controller.hpp"
#include "records.hpp"
#include "select-plugin/policy/plan.hpp"
#include "select-plugin/policy/snapshot.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::planner {

struct Pool {
    policy::Snapshot snapshot;
    std::vector<const slurm::Node *> nodes; // of the snapshot's, in its order
    std::vector<const slurm::Job *> jobs;
};

// A job that is not planned for, and why.
struct Left {
    const slurm::Job *job = nullptr;
    std::string why;
};

struct Outlook {
    std::vector<Pool> pools;
    std::vector<Left> left;
};

// nodes, jobs: must outlive what is returned. now: milliseconds since 1970, that of the records' last look.
[[nodiscard]] Outlook look(std::span<const slurm::Node> nodes, std::span<const slurm::Job> jobs,
                           Records &records, policy::Milliseconds now);

} // namespace singularity::planner
