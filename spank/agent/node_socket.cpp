// SPDX-License-Identifier: GPL-2.0-or-later
#include "node_socket.hpp"

#include "common/unix_socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity::agent {

Expected<UniqueFd> listen_in_node(const std::filesystem::path &folder, const std::filesystem::path &name,
                                  int backlog, const SocketOwner &owner) {
    // Through a descriptor: the path of a state directory may be longer than a socket's address.
    const auto directory = open_file(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (!directory)
        return std::unexpected(directory.error());
    const auto path = folder / name;
    auto socket =
        listen_unix(fmt::format("/proc/self/fd/{}/{}", directory->get(), name.native()), 0600, backlog);
    if (!socket)
        return std::unexpected(errno_error("listen on", path.native(), socket.error().code));
    if (fchownat(directory->get(), name.c_str(), owner.uid, owner.gid, AT_SYMLINK_NOFOLLOW) != 0)
        return std::unexpected(errno_error("set the owner of", path.native()));
    return socket;
}

} // namespace singularity::agent
