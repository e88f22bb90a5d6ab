// SPDX-License-Identifier: GPL-2.0-or-later
// The file that the device proxies of a job's nodes on this host share: by it those that have the same device
// take turns (proxy/daemon/neighbours.hpp says what is in it). It has no name, and the agent keeps it only
// until all of them have been started.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

namespace singularity::agent {

[[nodiscard]] Expected<UniqueFd> make_neighbour_file();

} // namespace singularity::agent
