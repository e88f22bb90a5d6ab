// SPDX-License-Identifier: GPL-2.0-or-later
#include "local_mounts.hpp"

#include <filesystem>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

namespace singularity::spank {

Expected<void> show_local_directories(const local::Notice &settings, const UniqueFd &tree,
                                      const std::string &name, local::Owner owner) {
    std::vector<std::pair<std::filesystem::path, std::filesystem::path>> binds;
    for (const auto &path : settings.paths) {
        auto made =
            local::make_directory(tree, local::place_of(settings.base, name), local::kMain, owner, path);
        if (!made)
            return propagate(made);
        binds.emplace_back(*std::move(made), path);
    }
    // What is mounted on the host later is to be seen, and nothing of ours there.
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
        return std::unexpected(errno_error("make", "a mount namespace"));
    mount_attr bare{.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, // beside what that of the base has
                    .attr_clr = 0,
                    .propagation = 0,
                    .userns_fd = 0};
    for (const auto &[source, path] : binds)
        if (mount(source.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
            mount_setattr(AT_FDCWD, path.c_str(), 0, &bare, sizeof(bare)) != 0)
            return std::unexpected(errno_error("show a job its own", path.native()));
    return {};
}

} // namespace singularity::spank
