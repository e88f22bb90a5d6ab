// SPDX-License-Identifier: GPL-2.0-or-later
#include "run_directory.hpp"

#include "log.hpp"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::launcher {

namespace {

constexpr const char *kPrefix = "singularity-run-";
constexpr const char *kLock = "lock"; // a file in the directory; the directory itself is the proxies' to lock
// A directory is locked a moment after it was made; one so young is never taken for abandoned.
constexpr std::chrono::seconds kYoung{60};

std::filesystem::path base() {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
    const char *const runtime = std::getenv("XDG_RUNTIME_DIR");
    return runtime != nullptr && *runtime != '\0' ? runtime : "/tmp";
}

void remove_tree(const std::filesystem::path &path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error)
        kLog.warning("cannot remove '{}': {}", path.string(), error.message());
}

// A directory of this user, not young, that nobody holds the lock of.
bool abandoned(const std::filesystem::path &path) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status{};
    if (!fd || fstat(fd.get(), &status) != 0 || status.st_uid != geteuid() ||
        std::time(nullptr) - status.st_mtime <= kYoung.count())
        return false;
    const UniqueFd lock(openat(fd.get(), kLock, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    return !lock || flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

void remove_abandoned() {
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator(base(), error))
        if (entry.path().filename().string().starts_with(kPrefix) && abandoned(entry.path()))
            remove_tree(entry.path());
}

} // namespace

Expected<RunDirectory> RunDirectory::make() {
    remove_abandoned();
    std::string name = base() / (std::string(kPrefix) + "XXXXXX");
    if (mkdtemp(name.data()) == nullptr)
        return std::unexpected(errno_error("make a private directory", name));
    UniqueFd lock(
        open((name + "/" + kLock).c_str(), O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!lock || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
        auto error = errno_error("lock", name);
        remove_tree(name);
        return std::unexpected(std::move(error));
    }
    return RunDirectory(std::move(name), std::move(lock));
}

RunDirectory::~RunDirectory() {
    if (!path_.empty())
        remove_tree(path_);
}

} // namespace singularity::launcher
