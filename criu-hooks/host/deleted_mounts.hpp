// SPDX-License-Identifier: GPL-2.0-or-later
// Mounts whose source was deleted, or replaced, while the node ran: a file that an editor or an upgrade
// writes anew under its name. CRIU would make the source again, at the place where the caller has put what is
// there now.
#pragma once

#include "criu-hooks/host/node.hpp"

namespace singularity::host {

// In the image, of the mounts that the caller declares: they are bound as if nothing had happened.
[[nodiscard]] Expected<void> bind_what_is_there(const RestoreRequest &request);

} // namespace singularity::host
