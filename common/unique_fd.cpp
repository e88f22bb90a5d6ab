// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/unique_fd.hpp"

#include "common/log.hpp"

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity {
namespace {

constexpr log::Channel kDescriptorLog("descriptor");

// 0, or the error. Linux has released the descriptor when close is interrupted (close(2), NOTES), so it is
// not called again.
int close_once(int fd) noexcept { return ::close(fd) == 0 || errno == EINTR ? 0 : errno; }

} // namespace

void UniqueFd::reset(int fd) noexcept {
    const int old = std::exchange(fd_, fd);
    if (old < 0 || old == fd)
        return;
    // The destructor often runs on the way out of a failed call whose errno is still wanted.
    const int saved_errno = errno;
    if (const int code = close_once(old); code != 0)
        kDescriptorLog.error("cannot close descriptor {}: errno {}", old, code);
    errno = saved_errno;
}

Expected<void> UniqueFd::close() {
    const int fd = release();
    if (const int code = close_once(fd); code != 0)
        return std::unexpected(errno_error("close", fmt::format("descriptor {}", fd), code));
    return {};
}

Expected<UniqueFd> open_file(const std::filesystem::path &path, int flags, unsigned mode) {
    for (;;) {
        UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
        if (fd)
            return fd;
        if (errno != EINTR)
            return std::unexpected(errno_error("open", path.native()));
    }
}

} // namespace singularity
