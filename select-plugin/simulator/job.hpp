// SPDX-License-Identifier: GPL-2.0-or-later
// One job while it is simulated.
#pragma once

#include "units.hpp"

#include <cstdint>

namespace singularity::simulator {

enum class JobState : std::uint8_t {
    kFuture,   // not yet submitted
    kWaiting,  // holds nothing
    kRunning,  // holds its placement; makes progress from `ready` on
    kFinished, //
    kRejected, // its least size does not fit the empty cluster
};

struct Job {
    // As submitted.
    std::int64_t id = 0;
    Time submit = 0;
    Time duration = 0; // at full size
    std::int32_t demand = 0;
    std::int32_t minimum = 0; // equal to the demand: cannot be resized
    Tier tier = Tier::kBasic;

    JobState state = JobState::kFuture;
    std::int32_t gpus = 0;
    double speed = 0;
    Placement placement;
    Time since = 0; // progress and GPU time are counted up to here
    Time ready = 0; // running: when it makes progress again
    // Waiting: when its images are complete. It may be given GPUs before, and then begins later.
    Time available = 0;
    double left = 0;       // work, in milliseconds at full size
    double saved_left = 0; // the same at its last checkpoint
    Time saved_at = 0;     // when that was (the hours since are counted from here)
    bool has_image = false;
    std::uint32_t generation = 0; // of the event that will end it

    // What became of it. GPU time in milliseconds.
    Time first_start = kNever;
    Time end = kNever;
    Time running_time = 0;      // holding GPUs
    double held = 0;            // GPU time it held
    double useful = 0;          // of that, what its work needs at full size
    double lost_moving = 0;     // held without progress: before `ready`
    double lost_splicing = 0;   // held, in progress, but slower than its GPUs would allow
    double lost_again = 0;      // work that was lost with a node or a kill and done again
    std::uint32_t moves = 0;    // shrink, grow, migrate, yield
    std::uint32_t kills = 0;    // preempted without a checkpoint
    std::uint32_t failures = 0; // lost a node
};

} // namespace singularity::simulator
