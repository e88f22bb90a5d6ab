// SPDX-License-Identifier: GPL-2.0-or-later
// Files and directories that processes watch (inotify(7)) on a file system that cannot open a file by its
// handle, as an overlay cannot: the root of an image with a writable layer, or of a host that has none of its
// own. The kernel tells a watch by inode alone, so CRIU must be told where to look for it. They are looked
// for where programs have what they watch: below the directories that the process is in, or has files open
// in, its home, and a few of the system's.
#pragma once

#include "criu-hooks/host/node.hpp"

#include <string>
#include <vector>

namespace singularity::host {

// Their paths, as the node sees them. An error (EOPNOTSUPP) if one is not found. It looks into the user's
// directories, and may hang there.
[[nodiscard]] Expected<std::vector<std::string>> watched_names(const Context &context, pid_t init);

// The same on a thread of its own, which is left behind if the user's file systems do not answer.
[[nodiscard]] Expected<std::vector<std::string>> watched_names_in_time(const Context &context, pid_t init);

} // namespace singularity::host
