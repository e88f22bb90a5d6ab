// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/slurm/job_fate.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>

#include <slurm/slurm.h>
#include <sys/wait.h>

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

constexpr std::array<std::string_view, 6> kWords{"stays",   "requeued",   "preempted",
                                                 "timeout", "terminated", "ended"};

struct State {
    std::uint32_t state; // an enum job_states
    std::string_view word;
};
constexpr std::array kStates{
    State{JOB_PENDING, "PENDING"},     State{JOB_RUNNING, "RUNNING"},     State{JOB_SUSPENDED, "SUSPENDED"},
    State{JOB_COMPLETE, "COMPLETED"},  State{JOB_CANCELLED, "CANCELLED"}, State{JOB_FAILED, "FAILED"},
    State{JOB_TIMEOUT, "TIMEOUT"},     State{JOB_NODE_FAIL, "NODE_FAIL"}, State{JOB_PREEMPTED, "PREEMPTED"},
    State{JOB_BOOT_FAIL, "BOOT_FAIL"}, State{JOB_DEADLINE, "DEADLINE"},   State{JOB_OOM, "OUT_OF_MEMORY"},
};

} // namespace

Fate fate_of(std::uint32_t state, std::time_t preempt_time, std::uint32_t exit_code) {
    const std::uint32_t base = state & JOB_STATE_BASE;
    const auto *const rule =
        std::ranges::find_if(kRules, [&](const Rule &candidate) { return candidate.state == base; });
    const Fate fate = rule == kRules.end() ? Fate::kEnded : rule->fate;
    const bool ending = (state & JOB_COMPLETING) != 0;
    if (fate == Fate::kStays && !ending)
        return preempt_time == 0 ? Fate::kStays : Fate::kPreempted;
    if ((state & kToBeRequeued) != 0)
        return Fate::kRequeued;
    const int status = static_cast<int>(exit_code);
    if (base == JOB_FAILED && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM)
        return Fate::kTerminated;
    return fate == Fate::kStays ? Fate::kEnded : fate;
}

std::string_view state_word(std::uint32_t state) {
    if ((state & JOB_COMPLETING) != 0)
        return "COMPLETING";
    const auto *const found = std::ranges::find_if(
        kStates, [&](const State &candidate) { return candidate.state == (state & JOB_STATE_BASE); });
    return found == kStates.end() ? std::string_view("UNKNOWN") : found->word;
}

std::string_view to_string(Fate fate) { return kWords.at(static_cast<std::size_t>(fate)); }

} // namespace singularity::slurm
