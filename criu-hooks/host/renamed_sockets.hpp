// SPDX-License-Identifier: GPL-2.0-or-later
// Unix sockets that got the name by which they are found after they were bound: under another name first,
// which rename(2) or link(2) and unlink(2) then replaced, so that no client finds one that does not listen
// yet. CRIU 4.2 binds them again as they were bound, where nobody looks for them, or removes that name as
// well. In the image they have the name that they had at the dump, in the same directory; that is also what
// getsockname(2) says after a restore.
#pragma once

#include "criu-hooks/host/node.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace singularity::host {

using SocketNames = std::map<std::uint64_t, std::string>; // by inode: the name, as the node sees it

// While nothing of the node runs. It looks into the user's directories, and may hang there.
[[nodiscard]] Expected<SocketNames> renamed_sockets(const Context &context, pid_t init);

// In an image that CRIU has written.
[[nodiscard]] Expected<void> rename_in_image(int images, const SocketNames &names);

} // namespace singularity::host
