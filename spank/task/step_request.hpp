// SPDX-License-Identifier: GPL-2.0-or-later
// What Slurm has told a task of its step, as the agent wants to hear it.
#pragma once

#include "agent/protocol/agent_messages.hpp"
#include "common/error.hpp"
#include "variables.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace singularity::task {

struct StepRequest {
    agent::JoinStep join; // without the program, but for a directory that the user wants in the image
    // What the program's CUDA_VISIBLE_DEVICES must be: of the virtual node's devices. Empty: as it is.
    std::string visible_devices;
    // Of what comes to its standard input, so many bytes it has had before it was restored.
    std::uint64_t had = 0;
};

// The same of a batch script, which is the only task of a step of its own on this host.
[[nodiscard]] Expected<StepRequest> script_request(const std::vector<std::string> &environment);

// environment: NAME=VALUE, as Slurm has made it (srun(1)). An error says what of the
// step cannot be kept in virtual nodes, and which option of srun changes that.
[[nodiscard]] Expected<StepRequest> step_request(const std::vector<std::string> &environment);

} // namespace singularity::task
