// SPDX-License-Identifier: GPL-2.0-or-later
#include "directory.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity::store {
namespace {

constexpr mode_t kForOthers = S_IRWXG | S_IRWXO;
constexpr mode_t kPermissions = S_IRWXU | kForOthers | S_ISUID | S_ISGID | S_ISVTX;

bool is_component(std::string_view name) {
    return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
           name.find('\0') == std::string_view::npos;
}

// Names in the store are single components, whoever they come from: a file's content, a listing, a caller.
Expected<void> check_name(std::string_view name, const std::string &path) {
    if (!is_component(name))
        return failure("use", path, "that is no name of a file or directory", EINVAL);
    return {};
}

Expected<struct stat> status_of(int fd, const std::string &path) {
    struct stat status{};
    if (::fstat(fd, &status) != 0)
        return std::unexpected(errno_error("look at", path));
    return status;
}

// ELOOP and ENOTDIR are what O_NOFOLLOW and O_DIRECTORY answer to a symbolic link.
Error open_error(int parent, const std::string &name, const std::string &path, int code) {
    struct stat status{};
    if ((code == ELOOP || code == ENOTDIR) &&
        ::fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode))
        return {"open", path, "it is a symbolic link, and the store follows none", ELOOP};
    return errno_error("open", path, code);
}

Expected<void> check_own(const struct stat &status, const std::string &path) {
    if (status.st_uid != ::geteuid())
        return failure(
            "use", path,
            fmt::format("it belongs to uid {}, and the store to uid {}", status.st_uid, ::geteuid()), EPERM);
    if ((status.st_mode & kForOthers) != 0)
        return failure("use", path,
                       fmt::format("others may reach it (mode {:04o}): chmod go= and find out who did what",
                                   status.st_mode & kPermissions),
                       EPERM);
    return {};
}

Expected<void> check_on_the_way(const struct stat &status, const std::string &path) {
    if (status.st_uid != 0 && status.st_uid != ::geteuid())
        return failure("use", path,
                       fmt::format("it belongs to uid {}, who could replace what is below", status.st_uid),
                       EPERM);
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (status.st_mode & S_ISVTX) == 0)
        return failure("use", path,
                       fmt::format("others may write to it (mode {:04o}) and replace what is below",
                                   status.st_mode & kPermissions),
                       EPERM);
    return {};
}

Expected<UniqueFd> open_at(int parent, const std::string &name, const std::string &path, int flags) {
    for (;;) {
        UniqueFd fd(::openat(parent, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0600));
        if (fd)
            return fd;
        if (errno != EINTR)
            return std::unexpected(open_error(parent, name, path, errno));
    }
}

Expected<void> sync_directory(int fd, const std::string &path) {
    if (::fsync(fd) != 0)
        return std::unexpected(errno_error("make durable", path));
    return {};
}

// The directory `name` in `parent`, which is open, perhaps only as a place (O_PATH).
Expected<UniqueFd> open_own(int parent, const std::string &name, const std::string &path, Missing missing) {
    constexpr int kFlags = O_RDONLY | O_DIRECTORY;
    auto fd = open_at(parent, name, path, kFlags);
    if (!fd && fd.error().code == ENOENT && missing != Missing::kRefuse) {
        // EEXIST: another host was faster; what it made is checked like anything else.
        if (::mkdirat(parent, name.c_str(), S_IRWXU) != 0 && errno != EEXIST)
            return std::unexpected(errno_error("create directory", path));
        if (missing == Missing::kCreate) {
            auto above = open_at(parent, ".", path, kFlags);
            if (!above)
                return above;
            if (auto synced = sync_directory(above->get(), path); !synced)
                return propagate(synced);
        }
        fd = open_at(parent, name, path, kFlags);
    }
    if (!fd)
        return fd;
    const auto status = status_of(fd->get(), path);
    if (!status)
        return std::unexpected(status.error());
    if (auto checked = check_own(*status, path); !checked)
        return propagate(checked);
    return fd;
}

} // namespace

Expected<Directory> Directory::open(const std::filesystem::path &path, Missing missing) {
    if (!path.is_absolute())
        return failure("open the store", quote(path.native()), "its path must be absolute");
    std::vector<std::string> parts;
    for (const auto &part : path.relative_path())
        if (!part.empty() && part != ".")
            parts.push_back(part.native());
    if (parts.empty() || std::ranges::any_of(parts, [](const auto &part) { return !is_component(part); }))
        return failure("open the store", quote(path.native()), "its path must name a directory without '..'");
    auto place = open_at(AT_FDCWD, "/", "/", O_PATH | O_DIRECTORY);
    std::string so_far;
    for (std::size_t i = 0; place && i + 1 < parts.size(); ++i) {
        so_far += "/" + parts[i];
        place = open_at(place->get(), parts[i], so_far, O_PATH | O_DIRECTORY);
        if (!place)
            break;
        const auto status = status_of(place->get(), so_far);
        if (!status)
            return std::unexpected(status.error());
        if (auto checked = check_on_the_way(*status, so_far); !checked)
            return propagate(checked);
    }
    if (!place)
        return propagate(place);
    so_far += "/" + parts.back();
    auto fd = open_own(place->get(), parts.back(), so_far, missing);
    if (!fd)
        return propagate(fd);
    return Directory(*std::move(fd), std::move(so_far));
}

Expected<Directory> Directory::child(std::string_view name, Missing missing) const {
    std::string path = path_of(name);
    if (auto checked = check_name(name, path); !checked)
        return propagate(checked);
    auto fd = open_own(fd_.get(), std::string(name), path, missing);
    if (!fd)
        return propagate(fd);
    return Directory(*std::move(fd), std::move(path));
}

Expected<UniqueFd> Directory::open_file(std::string_view name) const {
    const std::string path = path_of(name);
    if (auto checked = check_name(name, path); !checked)
        return propagate(checked);
    // O_NONBLOCK: opening a planted FIFO must not wait for a writer.
    auto fd = open_at(fd_.get(), std::string(name), path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (!fd)
        return fd;
    const auto status = status_of(fd->get(), path);
    if (!status)
        return std::unexpected(status.error());
    if (!S_ISREG(status->st_mode))
        return failure("open", path, "it is no regular file", EINVAL);
    // The store makes none. Whoever made one can change the file from a place that nobody looks at.
    if (status->st_nlink > 1)
        return failure(
            "open", path,
            fmt::format("it has {} hard links: it is known under another name as well; put a copy in "
                        "its place (cp, then mv) and find out who did what",
                        status->st_nlink),
            EMLINK);
    if (auto checked = check_own(*status, path); !checked)
        return propagate(checked);
    return fd;
}

Expected<UniqueFd> Directory::create_file(std::string_view name) const {
    if (auto checked = check_name(name, path_of(name)); !checked)
        return propagate(checked);
    return open_at(fd_.get(), std::string(name), path_of(name), O_RDWR | O_CREAT | O_EXCL);
}

Expected<struct stat> Directory::status(std::string_view name) const {
    if (auto checked = check_name(name, path_of(name)); !checked)
        return propagate(checked);
    struct stat status{};
    if (::fstatat(fd_.get(), std::string(name).c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
        return std::unexpected(errno_error("look at", path_of(name)));
    return status;
}

Expected<bool> Directory::rename(std::string_view name, const Directory &to,
                                 std::string_view new_name) const {
    for (const auto &[part, directory] : {std::pair(name, this), std::pair(new_name, &to)})
        if (auto checked = check_name(part, directory->path_of(part)); !checked)
            return propagate(checked);
    if (::renameat(fd_.get(), std::string(name).c_str(), to.fd_.get(), std::string(new_name).c_str()) == 0)
        return true;
    if (errno == ENOENT)
        return false;
    const int code = errno;
    return std::unexpected(
        errno_error("rename", fmt::format("{} to {}", path_of(name), to.path_of(new_name)), code));
}

Expected<bool> Directory::remove(std::string_view name) const {
    if (auto checked = check_name(name, path_of(name)); !checked)
        return propagate(checked);
    if (::unlinkat(fd_.get(), std::string(name).c_str(), 0) == 0)
        return true;
    if (errno == ENOENT)
        return false;
    return std::unexpected(errno_error("remove", path_of(name)));
}

Expected<std::vector<std::string>> Directory::names() const {
    // Opened anew: each listing has a position of its own and, on NFS, asks the server.
    auto fd = open_at(fd_.get(), ".", path_, O_RDONLY | O_DIRECTORY);
    if (!fd)
        return propagate(fd);
    const std::unique_ptr<DIR, int (*)(DIR *)> stream(::fdopendir(fd->get()), ::closedir);
    if (!stream)
        return std::unexpected(errno_error("list", path_));
    (void)fd->release(); // the stream's
    std::vector<std::string> names;
    for (;;) {
        errno = 0;
        const dirent *entry = ::readdir(stream.get());
        if (entry == nullptr && errno != 0)
            return std::unexpected(errno_error("list", path_));
        if (entry == nullptr)
            return names;
        if (const std::string_view name = entry->d_name; name != "." && name != "..")
            names.emplace_back(name);
    }
}

Expected<void> Directory::sync() const { return sync_directory(fd_.get(), path_); }

std::string Directory::path_of(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

Expected<void> write_all(const UniqueFd &file, std::span<const std::byte> data, std::uint64_t offset,
                         const std::string &name) {
    while (!data.empty()) {
        const ssize_t written = ::pwrite(file.get(), data.data(), data.size(), static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return std::unexpected(errno_error("write", name));
        data = data.subspan(static_cast<std::size_t>(written));
        offset += static_cast<std::uint64_t>(written);
    }
    return {};
}

Expected<std::size_t> read_all(const UniqueFd &file, std::span<std::byte> data, std::uint64_t offset,
                               const std::string &name) {
    std::size_t done = 0;
    while (done < data.size()) {
        const ssize_t got =
            ::pread(file.get(), data.data() + done, data.size() - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return std::unexpected(errno_error("read", name));
        if (got == 0)
            break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

Expected<void> sync_data(const UniqueFd &file, const std::string &name) {
    if (::fdatasync(file.get()) != 0)
        return std::unexpected(errno_error("make durable", name));
    return {};
}

} // namespace singularity::store
