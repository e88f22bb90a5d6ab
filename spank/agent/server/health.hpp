// SPDX-License-Identifier: GPL-2.0-or-later
// The watch over what elastic jobs need of this machine (node_checks), in a process of its own: a check may
// take seconds.
#pragma once

#include "common/error.hpp"

namespace singularity::agent {

// For people and monitoring: one line per check; false if any fails.
[[nodiscard]] bool check_once();

// Starts the process that logs each check's first result and from then on only changes. It ends with this
// one.
[[nodiscard]] Expected<void> watch_health();

} // namespace singularity::agent
