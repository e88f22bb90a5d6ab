// SPDX-License-Identifier: GPL-2.0-or-later
// singularityctl's commands about Slurm's jobs. They are singularity-slurm's (slurm/), which takes this
// program's place: nothing else links libslurm.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace singularity::spank {

// migrate, resize and status.
void add_slurm_commands(CLI::App &app, int &status);

// Does not return, unless it fails: the exit status then, and the error has been printed.
[[nodiscard]] int become_slurm_program(std::vector<std::string> arguments);

} // namespace singularity::spank
