// SPDX-License-Identifier: GPL-2.0-or-later
// What a restored node has open: CRIU opens it as root, by names that lead somewhere else if the user, in
// whose directories they are, has put a link there meanwhile.
#pragma once

#include "criu-hooks/host/node.hpp"

namespace singularity::host {

// All files, directories, devices and mappings of the processes of a node that does not run yet are such as
// its user reaches by their names, or his own, or were given. An error names one that is not; code EACCES.
[[nodiscard]] Expected<void> verify_access(const Context &context, const RestoreRequest &request, pid_t init);

} // namespace singularity::host
