// SPDX-License-Identifier: GPL-2.0-or-later
// singularityctl checkpoint and restore.
#pragma once

namespace CLI {
class App;
}

namespace singularity::spank {

// status: what the program's exit status becomes.
void add_image_commands(CLI::App &app, int &status);

} // namespace singularity::spank
