// SPDX-License-Identifier: GPL-2.0-or-later
// What a node has open. A program may have got from another user's process what it cannot open itself, such
// as nscd's tables: not to be saved, since it could not be restored. Of one that is restored it is looked at
// once more, beyond the ids with which CRIU has opened it.
#pragma once

#include "criu-hooks/host/node.hpp"

#include <cstdint>
#include <vector>

namespace singularity::host {

// All files, directories, devices and mappings of the processes of a node that does not run (yet) are such as
// its user reaches by their names, or his own, or were given. An error names one that is not, and why; code
// EACCES. So is one that is the user's own, but without
// rights for him, on a file system that lets root do nothing: nobody could open it again. In a node that
// runs, what ends meanwhile is passed over, what changes may be taken for what it is not, and what is on its
// way through sockets is left alone.
enum class Node : std::uint8_t { stands_still, runs };
[[nodiscard]] Expected<void> verify_access(const Context &context,
                                           const std::vector<OutsideDescriptor> &given, pid_t init,
                                           Node node = Node::stands_still);

} // namespace singularity::host
