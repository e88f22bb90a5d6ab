// SPDX-License-Identifier: GPL-2.0-or-later
// What Slurm is doing with a job, from what its record says.
#pragma once

#include <cstdint>
#include <ctime>
#include <string_view>

namespace singularity::slurm {

enum class Fate : std::uint8_t {
    kStays,      // it runs, or is suspended, and nobody has asked for its end
    kRequeued,   // it waits to run again, or will as soon as its nodes have let go of it
    kPreempted,  // it runs, or is suspended, in the grace time before it is preempted
    kTimeout,    // its time is over, or it cannot end before its deadline
    kTerminated, // it has failed by SIGTERM, as a job does whose requeue slurmctld has forgotten
    kEnded,      // any other end, and what slurmctld does not know
};

// state: job_state of slurm.h, an enum job_states and flags; preempt_time: when its preemption began, or 0;
// exit_code: of a job that has ended, as wait(2) has it.
[[nodiscard]] Fate fate_of(std::uint32_t state, std::time_t preempt_time, std::uint32_t exit_code);

// "stays", "requeued", "preempted", "timeout", "terminated" or "ended".
[[nodiscard]] std::string_view to_string(Fate fate);

// As Slurm's own commands say it: "RUNNING", "COMPLETING"; "UNKNOWN" for what slurm.h has not.
[[nodiscard]] std::string_view state_word(std::uint32_t state);

} // namespace singularity::slurm
