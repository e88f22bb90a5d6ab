// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/host/staging.hpp"

#include "common/log.hpp"
#include "file.hpp"

#include <cerrno>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr log::Channel kChannel("host-image");
constexpr std::string_view kPrefix = "image-";

Expected<UniqueFd> open_base(const std::filesystem::path &base) {
    if (mkdir(base.c_str(), 0700) != 0 && errno != EEXIST)
        return std::unexpected(errno_error("make", base.string()));
    auto directory = open_file(base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!directory)
        return directory;
    struct stat status{};
    if (fstat(directory->get(), &status) != 0)
        return std::unexpected(errno_error("examine", base.string()));
    if (status.st_uid != geteuid() || (status.st_mode & 077U) != 0)
        return failure("use", base.string(),
                       fmt::format("it belongs to user {} and has mode {:o}: images hold the memory of jobs, "
                                   "so it must belong to "
                                   "user {} and have mode 700",
                                   status.st_uid, status.st_mode & 07777U, geteuid()));
    return directory;
}

// The lock is on the directory itself and goes with the process.
bool is_locked_by_us(int directory) { return flock(directory, LOCK_EX | LOCK_NB) == 0; }

Expected<void> remove_tree(const std::filesystem::path &path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error)
        return std::unexpected(errno_error("remove", path.string(), error.value()));
    return {};
}

} // namespace

// Nothing if somebody has removed the base meanwhile, who was the last there.
Expected<std::optional<Staging>> Staging::make_once(const std::filesystem::path &base) {
    auto parent = open_base(base);
    if (!parent && parent.error().code == ENOENT)
        return std::nullopt;
    if (!parent)
        return propagate(parent);
    for (;;) {
        std::uint64_t number = 0;
        if (getrandom(&number, sizeof(number), 0) != static_cast<ssize_t>(sizeof(number)))
            return std::unexpected(errno_error("draw", "a random number"));
        const std::string name = fmt::format("{}{:016x}", kPrefix, number);
        if (mkdirat(parent->get(), name.c_str(), 0700) != 0) {
            if (errno == EEXIST)
                continue;
            if (errno == ENOENT)
                return std::nullopt;
            return std::unexpected(errno_error("make a directory in", base.string()));
        }
        UniqueFd directory(
            openat(parent->get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!directory && errno != ENOENT) {
            const int code = errno;
            unlinkat(parent->get(), name.c_str(), AT_REMOVEDIR);
            return std::unexpected(errno_error("open", (base / name).string(), code));
        }
        // Another process that tidies up may have taken it before it was locked: then it is gone, and another
        // is made.
        if (directory && is_locked_by_us(directory.get()) &&
            faccessat(parent->get(), name.c_str(), F_OK, 0) == 0)
            return Staging(base / name, std::move(directory));
    }
}

Expected<Staging> Staging::make(const std::filesystem::path &base) {
    if (auto removed = remove_abandoned(base); !removed)
        kChannel.warning("{}", removed.error().message()); // room for new ones there may be all the same
    constexpr int kAttempts = 100;                         // each is somebody else who was the last there
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        auto made = make_once(base);
        if (!made)
            return propagate(made);
        if (auto &staging = *made; staging)
            return std::move(*staging);
    }
    return std::unexpected(errno_error("make a directory in", base.string(), ENOENT));
}

Staging::~Staging() {
    if (path_.empty())
        return;
    if (auto removed = remove_tree(path_); !removed)
        kChannel.error("{}", removed.error().message());
    // Whoever would remove it later may have looked already, and not found it.
    const auto base = path_.parent_path();
    if (rmdir(base.c_str()) != 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
        kChannel.error("{}", errno_error("remove", base.string()).message());
}

Expected<std::size_t> Staging::remove_abandoned(const std::filesystem::path &base) {
    auto parent = open_base(base);
    if (!parent)
        return propagate(parent);
    auto names = names_in(parent->get());
    if (!names)
        return propagate(names);
    std::size_t count = 0;
    for (const std::string &name : *names) {
        if (!name.starts_with(kPrefix))
            continue;
        const UniqueFd directory(
            openat(parent->get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!directory || !is_locked_by_us(directory.get()))
            continue;
        if (auto removed = remove_tree(base / name); !removed)
            return propagate(removed);
        ++count;
    }
    return count;
}

} // namespace singularity::host
