// SPDX-License-Identifier: GPL-2.0-or-later
#include "node_socket.hpp"

#include "common/unix_socket.hpp"

#include <cerrno>
#include <cstdio>

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
    // Whoever waits for the name may connect at once: it is there when its owner is.
    const auto at_first = name.native() + ".new";
    auto socket = listen_unix(fmt::format("/proc/self/fd/{}/{}", directory->get(), at_first), 0600, backlog);
    if (!socket)
        return std::unexpected(errno_error("listen on", path.native(), socket.error().code));
    if (fchownat(directory->get(), at_first.c_str(), owner.uid, owner.gid, AT_SYMLINK_NOFOLLOW) != 0)
        return std::unexpected(errno_error("set the owner of", path.native()));
    if (renameat(directory->get(), at_first.c_str(), directory->get(), name.c_str()) != 0)
        return std::unexpected(errno_error("make", path.native()));
    return socket;
}

Expected<void> share_in_node(const std::filesystem::path &from, const std::filesystem::path &to) {
    auto here = open_file(from.parent_path(), O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (!here)
        return propagate(here);
    auto there = open_file(to.parent_path(), O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (!there)
        return propagate(there);
    const auto name = to.filename();
    if (unlinkat(there->get(), name.c_str(), 0) != 0 && errno != ENOENT)
        return std::unexpected(errno_error("replace", to.native()));
    if (linkat(here->get(), from.filename().c_str(), there->get(), name.c_str(), 0) != 0)
        return std::unexpected(errno_error("make", to.native()));
    return {};
}

} // namespace singularity::agent
