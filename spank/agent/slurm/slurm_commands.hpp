// SPDX-License-Identifier: GPL-2.0-or-later
// The commands that do not work inside of a virtual node: Slurm's, which need slurmctld, munge's socket and
// connections from other hosts, and ours.
#pragma once

#include <string>
#include <vector>

namespace singularity::agent {

// Their paths, those that this host has, without links.
[[nodiscard]] std::vector<std::string> slurm_commands();

} // namespace singularity::agent
