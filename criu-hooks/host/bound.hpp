// SPDX-License-Identifier: GPL-2.0-or-later
// Unix sockets that have a name in a directory of this machine: CRIU removes what has the name, if that is a
// socket, and binds it again, with its user's ids. This says before which one would fail.
#pragma once

#include "criu-hooks/host/node.hpp"

namespace singularity::host {

// The user could do that himself. An error names the socket; code EACCES.
[[nodiscard]] Expected<void> verify_bound_sockets(const Context &context, const RestoreRequest &request);

} // namespace singularity::host
