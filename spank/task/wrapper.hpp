// SPDX-License-Identifier: GPL-2.0-or-later
// A task of Slurm's that is a rank elsewhere: in the virtual node that its step has on this host. The wrapper
// is the process that Slurm knows. Streams, signals and the exit status go through it.
#pragma once

#include "agent/protocol/agent_messages.hpp"
#include "common/error.hpp"
#include "companion.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace singularity::task {

// beside: what else is done meanwhile. had: so many bytes of its input the rank has had before.
// The rank's wait status, as waitpid(2) has it; all of its output has been delivered. An Error: it was not
// started, or nobody knows what became of it.
[[nodiscard]] Expected<int> run_rank(const std::filesystem::path &socket, agent::JoinStep request,
                                     const std::vector<std::string> &command, Companion &beside,
                                     std::uint64_t had = 0);

} // namespace singularity::task
