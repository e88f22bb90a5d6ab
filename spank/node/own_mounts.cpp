// SPDX-License-Identifier: GPL-2.0-or-later
#include "own_mounts.hpp"

#include <ranges>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

namespace singularity::node {

Expected<OwnMounts> OwnMounts::make() {
    if (unshare(CLONE_NEWNS) != 0)
        return std::unexpected(errno_error("make", "a mount namespace"));
    auto agent = open_file("/", O_PATH | O_DIRECTORY);
    if (!agent)
        return propagate(agent);
    auto own = open_file("/proc/self/ns/mnt", O_RDONLY);
    if (!own)
        return propagate(own);
    OwnMounts out(std::move(*agent), std::move(*own));
    if (auto gone = out.go_to_own_root(); !gone)
        return propagate(gone);
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
        return std::unexpected(errno_error("detach", "the mounts of the node from the host's"));
    return out;
}

Expected<void> OwnMounts::go_to_root_of_agent() const {
    if (fchdir(agent_.get()) != 0 || chroot(".") != 0)
        return std::unexpected(errno_error("go to", "the root of the agent"));
    return {};
}

Expected<void> OwnMounts::go_to_own_root() const {
    if (setns(own_.get(), CLONE_NEWNS) != 0)
        return std::unexpected(errno_error("go to", "the root of the mount namespace"));
    return {};
}

Expected<LocalView> LocalView::show(const Spec &spec) {
    LocalView out;
    for (const auto &one : spec.local) {
        if (one.is_layer())
            continue;
        if (::mount(one.source.c_str(), one.path.c_str(), nullptr, MS_BIND, nullptr) != 0)
            return std::unexpected(errno_error("look into the job's own", one.path));
        out.paths_.push_back(one.path);
    }
    return out;
}

LocalView::~LocalView() {
    for (const auto &path : std::views::reverse(paths_))
        umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
}

} // namespace singularity::node
