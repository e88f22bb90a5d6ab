// SPDX-License-Identifier: GPL-2.0-or-later
// What Slurm's own preemption must know of a plan. Pure.
#pragma once

#include "outlook.hpp"
#include "select-plugin/policy/plan.hpp"
#include "select-plugin/policy/tier.hpp"
#include "select-plugin/protection.hpp"

#include <ctime>
#include <span>

namespace singularity::planner {

// plans: of the outlook's pools, in their order. jobs: all that were looked at.
[[nodiscard]] Protection cover(const Outlook &outlook, std::span<const policy::Plan> plans,
                               std::span<const slurm::Job> jobs, const policy::Rules &rules,
                               std::time_t until);

} // namespace singularity::planner
