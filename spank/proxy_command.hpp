// SPDX-License-Identifier: GPL-2.0-or-later
// singularityctl proxy: a program on device proxies of its own.
#pragma once

namespace CLI {
class App;
}

namespace singularity::spank {

// Adds the command to the program's. `status` gets the exit status if it is the one that was given.
void add_proxy_command(CLI::App &app, int &status);

} // namespace singularity::spank
