// SPDX-License-Identifier: GPL-2.0-or-later
#include "mounts.hpp"

#include "common/plain_path.hpp"
#include "common/proc.hpp"
#include "common/unique_fd.hpp"
#include "image.hpp"
#include "kernel_file_systems.hpp"
#include "own_mounts.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <ranges>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace singularity::node {

namespace {

constexpr std::array<std::string_view, 6> kMachinePlaces{
    "/run/containerd", "/run/docker", "/run/netns", "/run/user", "/var/lib/containers", "/var/lib/docker"};

struct Device {
    const char *path;
    unsigned major;
    unsigned minor;
};
constexpr std::array kDevices{Device{"/dev/null", 1, 3},    Device{"/dev/zero", 1, 5},
                              Device{"/dev/full", 1, 7},    Device{"/dev/random", 1, 8},
                              Device{"/dev/urandom", 1, 9}, Device{"/dev/tty", 5, 0}};

struct Link {
    const char *path;
    const char *target;
};
constexpr std::array kLinks{Link{"/dev/fd", "/proc/self/fd"}, Link{"/dev/stdin", "/proc/self/fd/0"},
                            Link{"/dev/stdout", "/proc/self/fd/1"}, Link{"/dev/stderr", "/proc/self/fd/2"},
                            Link{"/dev/ptmx", "pts/ptmx"}};

constexpr const char *kLogLink = "/dev/log"; // of syslog(3)

struct OwnMount {
    const char *type;
    const char *target;
    unsigned long flags;
    const char *options;
};
constexpr unsigned long kQuiet = MS_NOSUID | MS_NOEXEC;
constexpr OwnMount kProc{"proc", "/proc", kQuiet | MS_NODEV, nullptr};
constexpr OwnMount kDev{"tmpfs", "/dev", kQuiet, "mode=0755,size=1m"};
constexpr OwnMount kInMemory{"tmpfs", nullptr, MS_NOSUID | MS_NODEV, "mode=1777"};
// Group 5 is tty on all distributions.
constexpr std::array kBelowDev{
    OwnMount{"devpts", "/dev/pts", kQuiet, "newinstance,ptmxmode=0666,mode=0620,gid=5"},
    OwnMount{"tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777"},
    OwnMount{"mqueue", "/dev/mqueue", kQuiet | MS_NODEV, nullptr}};

Expected<void> mount_own(const OwnMount &what) {
    if (::mount(what.type, what.target, what.type, what.flags, what.options) != 0)
        return std::unexpected(errno_error(fmt::format("mount {} on", what.type), what.target));
    return {};
}

// Everything that is mounted there: a mount may hide another.
Expected<void> clear(const char *target) {
    while (umount2(target, MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
    }
    if (errno != EINVAL)
        return std::unexpected(errno_error("unmount the host's", target));
    return {};
}

// The last ones first: they may lie in others.
Expected<void> clear_below(const std::string &top) {
    auto text = proc::read("/proc/self/mountinfo");
    if (!text)
        return propagate(text);
    for (const auto mounts = proc::mounts(*text); const auto &mount : std::views::reverse(mounts))
        if (is_in(mount.point, top) && umount2(mount.point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0 &&
            errno != EINVAL)
            return std::unexpected(errno_error("unmount the host's", mount.point));
    return {};
}

Expected<void> prune() {
    auto text = proc::read("/proc/self/mountinfo");
    if (!text)
        return propagate(text);
    for (const auto &point : pruned_mounts(*text))
        // EINVAL: it went with the one that it was mounted in.
        if (umount2(point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0 && errno != EINVAL)
            return std::unexpected(errno_error("unmount the host's", point));
    return {};
}

// Where the host's /dev leads for its log, "/run/systemd/journal/dev-log"; empty: it leads nowhere. A socket
// that lies in /dev itself stays the host's.
std::string log_of_host() {
    std::array<char, PATH_MAX> target{};
    const auto size = readlink(kLogLink, target.data(), target.size());
    return size > 0 && std::cmp_less(size, target.size())
               ? std::string(target.data(), static_cast<std::size_t>(size))
               : std::string();
}

Expected<void> make_dev() {
    const auto log = log_of_host();
    if (auto cleared = clear("/dev"); !cleared)
        return cleared;
    if (auto mounted = mount_own(kDev); !mounted)
        return mounted;
    for (const Device &device : kDevices)
        if (mknod(device.path, S_IFCHR | 0666, makedev(device.major, device.minor)) != 0)
            return std::unexpected(errno_error("make the device", device.path));
    for (const Link &link : kLinks)
        if (symlink(link.target, link.path) != 0)
            return std::unexpected(errno_error("make the link", link.path));
    if (log.starts_with('/') && symlink(log.c_str(), kLogLink) != 0)
        return std::unexpected(errno_error("make the link", kLogLink));
    for (const OwnMount &below : kBelowDev) {
        if (mkdir(below.target, 0755) != 0)
            return std::unexpected(errno_error("make the directory", below.target));
        if (auto mounted = mount_own(below); !mounted)
            return mounted;
    }
    return {};
}

Expected<void> make_proc() {
    if (auto cleared = clear(kProc.target); !cleared)
        return cleared;
    return mount_own(kProc);
}

// What the host has there, with all that is mounted in it.
using Trees = std::vector<std::pair<UniqueFd, std::string>>;
Expected<Trees> copy_shown(const UniqueFd &host, const Spec &spec) {
    Trees out;
    for (const auto &path : spec.shown) {
        out.emplace_back(
            open_tree(host.get(), path.c_str() + 1, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE),
            path);
        // Beside what each of the mounts has.
        mount_attr bare{.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                        .attr_clr = 0,
                        .propagation = 0,
                        .userns_fd = 0};
        if (!out.back().first ||
            mount_setattr(out.back().first.get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &bare, sizeof(bare)) != 0)
            return std::unexpected(errno_error("show the host's directory in an image "
                                               "(containers.mounts in singularity.yaml):",
                                               path));
    }
    return out;
}

// The tree at `root` becomes the whole of the namespace, whatever the root directory was before.
Expected<void> change_root(const UniqueFd &root) {
    // Any directory that every root has: it takes the tree for the moment before it is the root itself.
    constexpr const char *kStep = "/proc";
    if (move_mount(root.get(), "", AT_FDCWD, kStep, MOVE_MOUNT_F_EMPTY_PATH) != 0)
        return std::unexpected(errno_error("mount the root of the node on", kStep));
    // pivot_root(2), NOTES: with "." twice the old root lies on the new one and is unmounted there.
    if (fchdir(root.get()) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 ||
        chdir("/") != 0)
        return std::unexpected(errno_error("change to", "the root of the node"));
    return {};
}

} // namespace

std::vector<std::string> pruned_mounts(std::string_view mountinfo) {
    std::vector<std::string> out;
    for (auto &mount : proc::mounts(mountinfo))
        if (const auto *const known = kernel_file_system(mount.type);
            (known != nullptr && known->of_machine) ||
            std::ranges::any_of(kMachinePlaces, [&](auto place) { return is_in(mount.point, place); }))
            out.push_back(std::move(mount.point));
    return out;
}

Expected<void> enter_own_mounts(const Room &room, const Spec &spec, const ImageServer *server) {
    auto own = OwnMounts::make();
    if (!own)
        return propagate(own);
    const auto *const before = &own->root_of_agent(); // becomes the root
    ImageMounts image;
    if (server != nullptr) {
        if (auto gone = own->go_to_root_of_agent(); !gone)
            return gone;
        auto opened = open_image(room, spec, *server);
        if (!opened)
            return propagate(opened);
        image = std::move(*opened);
        if (auto gone = own->go_to_own_root(); !gone)
            return gone;
    }
    const UniqueFd root =
        spec.image.any()
            ? std::move(image.root)
            : UniqueFd(open_tree(before->get(), "",
                                 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE));
    if (!root)
        return std::unexpected(errno_error("copy", "the mounts of the host"));
    auto shown = copy_shown(*before, spec);
    if (!shown)
        return propagate(shown);
    struct Bind {
        UniqueFd tree;
        std::string target;
        bool is_of_user = false;
    };
    std::vector<Bind> binds;
    for (const auto &external : room.external_mounts(spec)) {
        if (external.of_image)
            continue;
        const auto source = external.source.relative_path(); // as the agent sees it
        binds.push_back(
            {.tree = UniqueFd(open_tree(before->get(), source.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)),
             .target = external.mount_point,
             .is_of_user = external.kept});
        if (!binds.back().tree)
            return std::unexpected(errno_error("take into the node", external.source.native()));
    }
    if (auto changed = change_root(root); !changed)
        return changed;
    for (const auto &[tree, target] : *shown)
        if (auto attached = attach(tree, target); !attached)
            return attached;
    // An image has no /proc in which prune could look; the host's has mounts that prune takes out.
    constexpr std::array kOnHost{prune, make_dev, make_proc};
    constexpr std::array kInImage{make_proc, prune, make_dev};
    for (const auto step : spec.image.any() ? kInImage : kOnHost)
        if (auto done = step(); !done)
            return done;
    for (const auto &path : memory_directories(spec)) {
        auto in_memory = kInMemory;
        in_memory.target = path.c_str();
        if (auto mounted = mount_own(in_memory); !mounted)
            return mounted;
    }
    for (std::size_t at = 0; at < image.mounts.size(); ++at)
        if (auto attached = attach(image.mounts[at], spec.image.mounts[at].target); !attached)
            return attached;
    // What the host has mounted there, and in it, is not the job's.
    for (const auto &one : spec.local)
        if (auto hidden = one.is_layer() ? Expected<void>() : clear_below(one.path); !hidden)
            return hidden;
    for (const auto &bind : binds) {
        if (move_mount(bind.tree.get(), "", AT_FDCWD, bind.target.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
            return std::unexpected(errno_error("mount in the node", bind.target));
        mount_attr bare{.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, // beside what the host's has
                        .attr_clr = 0,
                        .propagation = 0,
                        .userns_fd = 0};
        if (bind.is_of_user && mount_setattr(AT_FDCWD, bind.target.c_str(), 0, &bare, sizeof(bare)) != 0)
            return std::unexpected(errno_error("mount without devices", bind.target));
    }
    return image.below ? attach(image.below, Room::kBelowInNode) : Expected<void>();
}

} // namespace singularity::node
