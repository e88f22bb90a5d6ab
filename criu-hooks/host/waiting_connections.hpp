// SPDX-License-Identifier: GPL-2.0-or-later
// TCP connections of a node that the kernel has made and no program has accepted yet. CRIU can leave them out
// of an image. That is right for a client outside of the job: it keeps its connection while the node runs on,
// and its network resets it before a restore. A client within the job is in an image itself and would wait
// for ever.
#pragma once

#include "criu-hooks/host/node.hpp"

namespace singularity::host {

// While nothing of the node runs. The error, with code EAGAIN, is that a client of the job waits.
[[nodiscard]] Expected<void> check_waiting_connections(const DumpRequest &request);

} // namespace singularity::host
