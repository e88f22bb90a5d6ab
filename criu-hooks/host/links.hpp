// SPDX-License-Identifier: GPL-2.0-or-later
// Names that CRIU gives to files for a dump: `link_remap.N` for a file that has lost the name under which it
// was opened and has another one, as each semaphore of sem_open(3) has. CRIU makes them beside the lost name,
// in memory of the node's own (check_files.cpp), so that they are in the image with the file; a restore
// removes them.
#pragma once

#include "criu-hooks/host/node.hpp"

namespace singularity::host {

// After a dump: removes them from a node that stands still and may run on. CRIU does so by itself only where
// it lets the node run on.
[[nodiscard]] Expected<void> remove_links(const Context &context, pid_t init, int images);

} // namespace singularity::host
