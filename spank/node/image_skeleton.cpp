// SPDX-License-Identifier: GPL-2.0-or-later
#include "image_skeleton.hpp"

#include "common/write_all.hpp"

#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::node {

namespace {

constexpr mode_t kForAll = 0755;
constexpr mode_t kFileForAll = 0644;

Expected<UniqueFd> made_in(const UniqueFd &above, const std::string &name, uid_t uid, gid_t gid) {
    if (mkdirat(above.get(), name.c_str(), kForAll) != 0 && errno != EEXIST)
        return std::unexpected(errno_error("make the mount point", name));
    UniqueFd out(openat(above.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!out || fchmod(out.get(), kForAll) != 0 || fchown(out.get(), uid, gid) != 0) // whatever the umask is
        return std::unexpected(errno_error("make the mount point", name));
    return out;
}

} // namespace

Expected<Skeleton> Skeleton::make(const std::filesystem::path &place) {
    const auto failed = [&] { return std::unexpected(errno_error("make mount points at", place.native())); };
    const UniqueFd system(fsopen("tmpfs", FSOPEN_CLOEXEC));
    if (!system)
        return failed();
    for (const auto &[key, value] : {std::pair("source", "skeleton"), std::pair("size", "4m"),
                                     std::pair("nr_inodes", "4096"), std::pair("mode", "0755")})
        if (fsconfig(system.get(), FSCONFIG_SET_STRING, key, value, 0) != 0)
            return failed();
    if (fsconfig(system.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
        return failed();
    const UniqueFd tree(fsmount(system.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
    if (!tree || (mkdir(place.c_str(), S_IRWXU) != 0 && errno != EEXIST) ||
        move_mount(tree.get(), "", AT_FDCWD, place.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
        return failed();
    UniqueFd top(openat(tree.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    Skeleton out(place, std::move(top));
    if (out.fd() < 0)
        return failed();
    return out;
}

Skeleton::~Skeleton() {
    if (!place_.empty())
        umount2(place_.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
}

Expected<void> Skeleton::give_to(uid_t uid, gid_t gid) {
    uid_ = uid;
    gid_ = gid;
    if (fchown(top_.get(), uid, gid) != 0)
        return std::unexpected(errno_error("give the user", place_.native()));
    return {};
}

Expected<UniqueFd> Skeleton::directory(std::string_view path) const {
    UniqueFd at(fcntl(top_.get(), F_DUPFD_CLOEXEC, 0));
    if (!at)
        return std::unexpected(errno_error("make the mount point", path));
    while (!path.empty()) {
        path.remove_prefix(1); // its slash
        const std::string name(path.substr(0, path.find('/')));
        path.remove_prefix(name.size());
        auto next = made_in(at, name, uid_, gid_);
        if (!next)
            return next;
        at = std::move(*next);
    }
    return at;
}

Expected<void> Skeleton::add_directory(std::string_view path) const {
    auto made = directory(path);
    return made ? Expected<void>() : propagate(made);
}

Expected<void> Skeleton::add_file(std::string_view path, std::string_view content) const {
    const auto slash = path.rfind('/');
    auto above = directory(path.substr(0, slash));
    if (!above)
        return propagate(above);
    const std::string name(path.substr(slash + 1));
    const UniqueFd file(openat(above->get(), name.c_str(),
                               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, kFileForAll));
    if (!file || fchmod(file.get(), kFileForAll) != 0 || fchown(file.get(), uid_, gid_) != 0)
        return std::unexpected(errno_error("make the file", path));
    return write_all(file.get(), content, path);
}

} // namespace singularity::node
