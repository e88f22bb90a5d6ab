// SPDX-License-Identifier: GPL-2.0-or-later
#include "places.hpp"

#include "switch.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace singularity::as_user {
namespace {

// criu gathers the node's mounts in /tmp/.criu.mntns.XXXXXX/mnt-0000000123 before any process is in its own
// place, and makes deleted files there.
constexpr const char *kGathered = "/tmp/.criu.mntns.";
// "/proc/self/fd/63": criu opens what it has itself once more. What a process had open there is relative to
// the node's root.
constexpr const char *kOwn = "/proc/";
constexpr int kOfMount = 3; // names until the mount's own

bool is_root_of_node(const struct stat &about) {
    return about.st_dev == node().device && about.st_ino == node().inode;
}

// 0: not known, and no mount's.
std::uint64_t mount_of_root() {
    struct statx about{};
    return statx(AT_FDCWD, "/", AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &about) == 0 ? about.stx_mnt_id : 0;
}

// A node's root may be the machine's, mounted once more.
std::uint64_t first_mount = 0;
[[gnu::constructor]] void look_first() { first_mount = mount_of_root(); }

// Its name as criu has made it, which nobody could know before; empty: there is none.
std::array<char, 64> gathered{};

bool is_gathered(const char *name) {
    const std::size_t length = std::strlen(gathered.data());
    return length != 0 && std::strncmp(name, gathered.data(), length) == 0 &&
           (name[length] == '/' || name[length] == '\0');
}

// What follows the mount's own name; nullptr: nothing.
const char *below_mount(const char *name) {
    for (int names = 0; names < kOfMount; ++names) {
        name = std::strchr(name + 1, '/');
        if (name == nullptr)
            return nullptr;
    }
    return name[1] == '\0' ? nullptr : name + 1;
}

bool is_roots(int directory) {
    struct stat about{};
    struct statfs on{};
    return fstat(directory, &about) == 0 && fstatfs(directory, &on) == 0 && S_ISDIR(about.st_mode) &&
           about.st_uid == 0 && (about.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
           on.f_type != FUSE_SUPER_MAGIC; // says what its user likes
}

// The root of the node is its user's: an image with a layer to which the node's programs write. Nobody
// reaches that but the node itself, of which nothing runs yet, so that its directories are what they are.
bool is_own_layer(int root) {
    struct stat about{};
    struct statfs on{};
    return fstat(root, &about) == 0 && fstatfs(root, &on) == 0 && is_root_of_node(about) &&
           about.st_uid != 0 && about.st_uid == node().uid && on.f_type == OVERLAYFS_SUPER_MAGIC;
}

bool is_on_layer(int directory) {
    struct stat about{};
    return fstat(directory, &about) == 0 && S_ISDIR(about.st_mode) && about.st_dev == node().device;
}

// The directory that the way begins in; `name` becomes the rest. -1: not known.
int first_directory(int directory, const char *&name) {
    constexpr int kHow = O_PATH | O_DIRECTORY | O_CLOEXEC;
    if (*name != '/') {
        const int first = openat(directory, ".", kHow);
        struct stat about{};
        if (first < 0 || (fstat(first, &about) == 0 && is_root_of_node(about)))
            return first;
        close(first);
        return -1;
    }
    const char *const below = is_gathered(name) ? below_mount(name) : nullptr;
    if (below == nullptr)
        return open("/", kHow);
    std::array<char, PATH_MAX> mount{};
    const auto length = static_cast<std::size_t>(below - name);
    if (length >= mount.size())
        return -1;
    std::memcpy(mount.data(), name, length);
    name = below;
    return open(mount.data(), kHow);
}

} // namespace

bool is_of_node(int directory, const char *name) {
    if (!node().restored || name == nullptr || *name == '\0') // nothing, or the descriptor itself
        return false;
    if (is_gathered(name))
        return below_mount(name) != nullptr;
    struct stat about{};
    if (stat("/", &about) != 0 || !is_root_of_node(about) || mount_of_root() == first_mount)
        return false;
    return *name == '/' || directory == AT_FDCWD || fstat(directory, &about) != 0 || is_root_of_node(about);
}

void remember_directory(const char *name) {
    if (std::strncmp(name, kGathered, std::strlen(kGathered)) == 0 && std::strlen(name) < gathered.size())
        std::memcpy(gathered.data(), name, std::strlen(name) + 1);
}

bool is_criu_s_own(const char *name) { return std::strncmp(name, kOwn, std::strlen(kOwn)) == 0; }

bool is_in_proc(int directory) {
    struct statfs on{};
    const int done = directory == AT_FDCWD ? statfs(".", &on) : fstatfs(directory, &on);
    return done == 0 && on.f_type == PROC_SUPER_MAGIC;
}

bool is_below_roots_directories(int directory, const char *name) {
    const int why = errno;
    int at = first_directory(directory, name);
    const bool layered = at >= 0 && is_own_layer(at);
    bool roots = at >= 0 && (layered || is_roots(at));
    for (name += std::strspn(name, "/"); roots; name += std::strspn(name, "/")) {
        const std::size_t length = std::strcspn(name, "/");
        if (name[length + std::strspn(name + length, "/")] == '\0') // the last one
            break;
        std::array<char, NAME_MAX + 1> one{};
        int next = -1;
        if (length < one.size()) {
            std::memcpy(one.data(), name, length);
            next = openat(at, one.data(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        close(at);
        at = next;
        roots =
            at >= 0 && (is_roots(at) || (layered && is_on_layer(at))) && std::strcmp(one.data(), "..") != 0;
        name += length;
    }
    roots = roots && is_roots(at); // the one in which it is
    if (at >= 0)
        close(at);
    errno = why;
    return roots;
}

} // namespace singularity::as_user
