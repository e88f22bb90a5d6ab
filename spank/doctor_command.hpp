// SPDX-License-Identifier: GPL-2.0-or-later
// singularityctl doctor: whether this node, and the cluster that it belongs to, can hold elastic jobs.
#pragma once

namespace CLI {
class App;
}

namespace singularity::spank {

// Adds the command to the program's. `status` gets the exit status if it is the one that was given.
void add_doctor_command(CLI::App &app, int &status);

} // namespace singularity::spank
