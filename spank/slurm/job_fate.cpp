// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_fate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include <slurm/slurm.h>

namespace singularity::slurm {

namespace {

// Of a job that has ended: when its nodes have let go of it, slurmctld makes it wait again (RequeueExit, a
// prolog that failed, a federation).
constexpr std::uint32_t kToBeRequeued = JOB_REQUEUE | JOB_REQUEUE_HOLD | JOB_SPECIAL_EXIT | JOB_REQUEUE_FED;

struct Rule {
    std::uint32_t state; // an enum job_states
    Fate fate;
};

constexpr std::array kRules{
    Rule{JOB_PENDING, Fate::kRequeued}, Rule{JOB_RUNNING, Fate::kStays},    Rule{JOB_SUSPENDED, Fate::kStays},
    Rule{JOB_TIMEOUT, Fate::kTimeout},  Rule{JOB_DEADLINE, Fate::kTimeout},
};

constexpr std::array<std::string_view, 5> kWords{"stays", "requeued", "preempted", "timeout", "ended"};

} // namespace

Fate fate_of(std::uint32_t state, std::time_t preempt_time) {
    const std::uint32_t base = state & JOB_STATE_BASE;
    const auto *const rule =
        std::ranges::find_if(kRules, [&](const Rule &candidate) { return candidate.state == base; });
    const Fate fate = rule == kRules.end() ? Fate::kEnded : rule->fate;
    const bool ending = (state & JOB_COMPLETING) != 0;
    if (fate == Fate::kStays && !ending)
        return preempt_time == 0 ? Fate::kStays : Fate::kPreempted;
    if ((state & kToBeRequeued) != 0)
        return Fate::kRequeued;
    return fate == Fate::kStays ? Fate::kEnded : fate;
}

std::string_view to_string(Fate fate) { return kWords.at(static_cast<std::size_t>(fate)); }

} // namespace singularity::slurm
