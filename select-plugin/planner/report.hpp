// SPDX-License-Identifier: GPL-2.0-or-later
// What the planner thinks, for people (singularityctl status --plan) and for Prometheus (text format 0.0.4).
// Pure.
#pragma once

#include "hands.hpp"
#include "outlook.hpp"
#include "records.hpp"
#include "select-plugin/policy/plan.hpp"

#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::planner {

// Of one look, beside what it saw.
struct Thought {
    std::time_t when = 0;
    bool dry_run = false; // nothing of it is carried out
    std::uint64_t looks = 0;
    std::uint64_t asking_us = 0;     // slurmctld, for all that was looked at
    std::uint64_t planning_us = 0;   // all pools together
    std::uint64_t acting_us = 0;     // slurmctld again, for what was decided
    std::vector<policy::Plan> plans; // of the outlook's pools, in their order
};

[[nodiscard]] std::string words(const Outlook &outlook, const Thought &thought, const policy::Rules &rules);

// Jobs' own lines are those of the kShownJobs furthest below their guarantee.
constexpr std::size_t kShownJobs = 256;
[[nodiscard]] std::string metrics(const Outlook &outlook, const Thought &thought, const Done &done,
                                  const policy::Rules &rules);

} // namespace singularity::planner
