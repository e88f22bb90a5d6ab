// SPDX-License-Identifier: GPL-2.0-or-later
// A batch script that is saved: it runs in a virtual node, as the only rank of a step of its own. Slurm's
// commands in it are run by this process, outside of the node. One that is saved only until it begins an srun
// is from then on what a script is that runs again from its first line (script.hpp), but in its node.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace singularity::task {

// The script's wait status; SIGTERM for one that has been saved and goes on another time. gpus: its job's, 0:
// nobody has asked.
[[nodiscard]] Expected<int> run_saved_script(const std::filesystem::path &socket, std::uint32_t gpus,
                                             const std::vector<std::string> &command, bool until_srun);

} // namespace singularity::task
