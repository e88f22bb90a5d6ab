// SPDX-License-Identifier: GPL-2.0-or-later
#include "directory.hpp"

#include "common/deadline.hpp"
#include "file.hpp"
#include "written_files.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::host {
namespace {

UniqueFd open_safely(const std::filesystem::path &path, std::uint64_t flags) {
    open_how how{.flags = flags | O_CLOEXEC, .mode = 0, .resolve = RESOLVE_NO_MAGICLINKS};
    return UniqueFd(static_cast<int>(syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof(how))));
}

} // namespace

std::optional<Directory> Directory::open(const std::filesystem::path &path) {
    auto fd = open_safely(path, O_RDONLY | O_DIRECTORY);
    if (!fd) // one that its user may only pass through
        fd = open_safely(path, O_PATH | O_DIRECTORY);
    if (!fd)
        return std::nullopt;
    return Directory(std::move(fd));
}

Expected<Directory> Directory::make(const std::filesystem::path &path, mode_t mode) {
    constexpr mode_t kPermissions = 07777;
    std::optional<Directory> here;
    std::filesystem::path so_far;
    for (auto name = path.begin(); name != path.end(); ++name) {
        so_far /= *name;
        auto next = open(so_far);
        if (!next && here &&
            mkdirat(here->fd_.get(), name->c_str(),
                    std::next(name) == path.end() ? mode & kPermissions : S_IRWXU) != 0 &&
            errno != EEXIST)
            return std::unexpected(errno_error("make the directory", so_far.native()));
        if (!next)
            next = open(so_far);
        if (!next)
            return std::unexpected(errno_error("open the directory", so_far.native()));
        here = std::move(next);
    }
    if (!here)
        return failure("open", "a directory", "it has no name", ENOENT);
    return std::move(*here);
}

Directory::Is Directory::look(const std::string &name, uid_t uid, FileThere &out) const {
    out.link = UniqueFd(openat(fd_.get(), name.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
    if (!out.link)
        return errno == ENOENT ? Is::nothing : Is::other;
    if (fstat(out.link.get(), &out.about) != 0 || !S_ISREG(out.about.st_mode) || out.about.st_uid != uid)
        return Is::other;
    out.identity = identity_of(out.link.get());
    return Is::file;
}

std::optional<std::map<std::string, std::string>> Directory::files(uid_t uid, std::size_t most) const {
    const auto names = names_in(fd_.get(), most).value_or(std::nullopt);
    if (!names)
        return std::nullopt;
    std::map<std::string, std::string> out;
    for (const std::string &name : *names) {
        FileThere file;
        if (look(name, uid, file) == Is::file)
            out.emplace(name, std::move(file.identity));
    }
    return out;
}

int Directory::rename(const std::string &from, const std::string &to, bool replace) const {
    if (renameat2(fd_.get(), from.c_str(), fd_.get(), to.c_str(), replace ? 0 : RENAME_NOREPLACE) == 0)
        return 0;
    // Not every file system can be asked not to replace: NFS.
    struct stat about{};
    if (errno == EINVAL && !replace && fstatat(fd_.get(), to.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0 &&
        errno == ENOENT)
        return rename(from, to, true);
    return errno == EINVAL && !replace ? EEXIST : errno;
}

int Directory::exchange(const std::string &one, const std::string &other) const {
    return renameat2(fd_.get(), one.c_str(), fd_.get(), other.c_str(), RENAME_EXCHANGE) == 0 ? 0 : errno;
}

UniqueFd Directory::lock() const {
    constexpr std::chrono::seconds kPatience{2}; // the user may hold it
    UniqueFd out(openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (out)
        static_cast<void>(wait_until([&] { return flock(out.get(), LOCK_EX | LOCK_NB) == 0; },
                                     Deadline::after(kPatience), "a directory"));
    return out;
}

int Directory::link(const std::string &from, const std::string &to) const {
    return linkat(fd_.get(), from.c_str(), fd_.get(), to.c_str(), 0) == 0 ? 0 : errno;
}

int Directory::unlink(const std::string &name) const {
    return unlinkat(fd_.get(), name.c_str(), 0) == 0 ? 0 : errno;
}

Expected<UniqueFd> Directory::create(const std::string &name, mode_t mode) const {
    constexpr mode_t kPermissions = 07777;
    UniqueFd out(openat(fd_.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                        mode & kPermissions));
    if (!out)
        return std::unexpected(errno_error("make", name));
    return out;
}

Expected<void> Directory::create_whole(const std::string &name, mode_t mode,
                                       const std::function<Expected<void>(int)> &fill) const {
    constexpr mode_t kPermissions = 07777;
    const UniqueFd unnamed(openat(fd_.get(), ".", O_RDWR | O_TMPFILE | O_CLOEXEC, mode & kPermissions));
    if (unnamed) {
        if (auto filled = fill(unnamed.get()); !filled)
            return filled;
        if (linkat(AT_FDCWD, fmt::format("/proc/self/fd/{}", unnamed.get()).c_str(), fd_.get(), name.c_str(),
                   AT_SYMLINK_FOLLOW) != 0)
            return std::unexpected(errno_error("make", name));
        return {};
    }
    // A file system that knows only files with names (NFS).
    const auto beside = fmt::format(".{}.restoring-{}-{}", name, getpid(), gettid());
    auto file = create(beside, mode);
    if (!file)
        return propagate(file);
    auto made = fill(file->get());
    if (const int code = made ? rename(beside, name, false) : 0; code != 0)
        made = std::unexpected(errno_error("make", name, code));
    if (!made)
        static_cast<void>(unlink(beside));
    return made;
}

UniqueFd reopened(const FileThere &file, int flags) {
    return UniqueFd(
        open(fmt::format("/proc/self/fd/{}", file.link.get()).c_str(), flags | O_CLOEXEC | O_NONBLOCK));
}

} // namespace singularity::host
