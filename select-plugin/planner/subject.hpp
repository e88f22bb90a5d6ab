// SPDX-License-Identifier: GPL-2.0-or-later
// A job of Slurm's as the policy sees it: its tier, the sizes at which it can run, whether it can be moved.
// Pure: a record of slurmctld's in, numbers out.
#pragma once

#include "common/slurm/controller.hpp"
#include "select-plugin/policy/snapshot.hpp"
#include "select-plugin/policy/tier.hpp"
#include "speeds.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace singularity::planner {

struct Range {
    std::uint32_t least = 0;
    std::uint32_t most = 0;
};
// What nobody's job may go beyond, in GPUs.
constexpr Range kAnySize{.least = 1, .most = 1U << 20U};
// Of "elastic=2-8" in its note: what the user allows. Nothing: it is not elastic, or has not run yet and
// nobody knows its MAX.
[[nodiscard]] std::optional<Range> range_of(const slurm::Job &job);

// That of the job's QOS, or else of its partition, if it is called premium, standard or basic; else basic.
[[nodiscard]] policy::Tier tier_of(const slurm::Job &job);

// Of all nodes together: what a running job has, what a pending one asks for. 0: none, or nobody can tell.
[[nodiscard]] std::uint32_t gpus_of(const slurm::Job &job);

// From the smallest to the one that was asked for; more than kMostSizes of them are thinned out. Of sizes at
// which as many ranks share the busiest GPU only the smallest is there: the others would be no faster. A job
// that is not elastic has one, that which it has or asks for; one without GPUs none. A running job's present
// size is always there. Speeds are those that were measured, or else assumed: the ranks of a GPU take turns.
// allowed: what the site and Slurm's limits leave of what the user allows. If that is nothing the job stays
// as it is.
constexpr std::size_t kMostSizes = 64;
[[nodiscard]] std::vector<policy::Size> sizes_of(const slurm::Job &job, const Speeds &speeds = {},
                                                 const Range &allowed = kAnySize);

// What the planner adds to the priority of a job that waits: `weight` for each tier above basic, and up to
// half of it for a job below its guarantee, in steps of a tenth: each change is a request to slurmctld.
[[nodiscard]] std::int32_t site_factor_of(const policy::Job &job, const policy::Rules &rules,
                                          std::int64_t weight);

// Whether it can be saved and run again: it runs, a step of it has told so and not that it could not be
// saved, and Slurm may requeue it.
[[nodiscard]] bool is_movable(const slurm::Job &job);

} // namespace singularity::planner
