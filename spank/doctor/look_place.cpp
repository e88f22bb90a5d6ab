// SPDX-License-Identifier: GPL-2.0-or-later
// Directories for images.
#include "common/proc.hpp"
#include "gather.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

namespace singularity::doctor {

namespace {

Expected<proc::Mount> mount_of(const std::filesystem::path &path) {
    struct statx status{};
    if (statx(AT_FDCWD, path.c_str(), 0, STATX_MNT_ID, &status) != 0)
        return std::unexpected(errno_error("look at", path.native()));
    auto mounts = proc::read("/proc/self/mountinfo");
    if (!mounts)
        return propagate(mounts);
    for (auto &mount : proc::mounts(*mounts))
        if (mount.id == status.stx_mnt_id)
            return std::move(mount);
    return proc::Mount(); // mounted outside of what this process sees
}

} // namespace

Fact<Place> look_at_place(const std::filesystem::path &directory) {
    Place out;
    std::filesystem::path so_far;
    std::filesystem::path existing = "/";
    for (const auto &part : directory.lexically_normal()) {
        if (part.empty()) // of a slash at the end
            continue;
        so_far /= part;
        auto found = look_at_file(so_far);
        if (!found)
            return not_seen(found.error());
        if (found->kind != FileKind::kMissing)
            existing = so_far;
        out.way.push_back(*std::move(found));
    }
    out.directory = out.way.back();
    out.way.pop_back();
    auto mount = mount_of(existing);
    if (!mount)
        return not_seen(mount.error());
    out.type = std::move(mount->type);
    out.options = std::move(mount->options);
    struct statvfs status{};
    if (statvfs(existing.c_str(), &status) != 0)
        return not_seen(errno_error("examine", existing.native()));
    out.free = static_cast<std::uint64_t>(status.f_bfree) * status.f_frsize;
    out.size = static_cast<std::uint64_t>(status.f_blocks) * status.f_frsize;
    return out;
}

Fact<Place> look_at_local(const Config::LocalDirectories &local, const Config::Containers &containers) {
    const bool has_layers =
        containers.enabled && containers.writable == Config::Containers::Writable::kAlways;
    if (local.paths.empty() && !has_layers)
        return not_seen(Unseen::kUnused, "local_directories.paths in singularity.yaml names none");
    return look_at_place(local.base);
}

Fact<std::vector<Place>> look_at_stores(const Config::Store &stores) {
    std::vector<Place> out;
    for (const auto &directory : config::all_stores(stores)) {
        auto place = look_at_place(directory);
        if (!place)
            return std::unexpected(place.error());
        out.push_back(*std::move(place));
    }
    return out;
}

} // namespace singularity::doctor
