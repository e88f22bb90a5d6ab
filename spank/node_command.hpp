// SPDX-License-Identifier: GPL-2.0-or-later
// singularityctl run, ps, logs, kill, destroy: virtual nodes by hand.
#pragma once

namespace CLI {
class App;
}

namespace singularity::spank {

// Adds the commands to the program's. `status` gets the exit status if it is one of them that was given.
void add_node_commands(CLI::App &app, int &status);

} // namespace singularity::spank
