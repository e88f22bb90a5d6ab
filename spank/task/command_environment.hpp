// SPDX-License-Identifier: GPL-2.0-or-later
// The environment of one of Slurm's commands that a batch script in a virtual node has called.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace singularity::task {

// What a command outside of the node needs, of what it has inside (NAME=VALUE each): nothing of the node's
// devices, and, for a script that goes on in another run of its job (moved), what `own`, the environment that
// Slurm has given to this run, says of where and on what the job runs. gpus: of the job, 0: nobody knows.
void adapt_environment(std::vector<std::string> &environment, const std::vector<std::string> &own, bool moved,
                       std::uint32_t gpus);

} // namespace singularity::task
