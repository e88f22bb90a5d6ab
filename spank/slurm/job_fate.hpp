// SPDX-License-Identifier: GPL-2.0-or-later
// What Slurm is doing with a job, from what its record says.
#pragma once

#include <cstdint>
#include <ctime>
#include <string_view>

namespace singularity::slurm {

enum class Fate : std::uint8_t {
    kStays,     // it runs, or is suspended, and nobody has asked for its end
    kRequeued,  // it waits to run again, or will as soon as its nodes have let go of it
    kPreempted, // it runs, or is suspended, in the grace time before it is preempted
    kTimeout,   // its time is over, or it cannot end before its deadline
    kEnded,     // any other end, and what slurmctld does not know
};

// state: job_state of slurm.h, an enum job_states and flags; preempt_time: when its preemption began, or 0.
[[nodiscard]] Fate fate_of(std::uint32_t state, std::time_t preempt_time);

// "stays", "requeued", "preempted", "timeout" or "ended".
[[nodiscard]] std::string_view to_string(Fate fate);

} // namespace singularity::slurm
