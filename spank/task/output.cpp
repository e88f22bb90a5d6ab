// SPDX-License-Identifier: GPL-2.0-or-later
#include "output.hpp"

#include <array>
#include <cerrno>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace singularity::task {
namespace {

constexpr const char *kAttribute = "user.singularity.job";

bool is_begun_by(int fd, std::string_view job) {
    std::array<char, 256> value{};
    const ssize_t size = fgetxattr(fd, kAttribute, value.data(), value.size());
    return size >= 0 && std::string_view(value.data(), static_cast<std::size_t>(size)) == job;
}

} // namespace

Expected<bool> begin_output(int fd, const std::string &job) {
    struct stat about{};
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_APPEND) == 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) ||
        is_begun_by(fd, job))
        return false;
    // Standard output and errors may be one file: the second time it is this job's already, or empty again.
    if (ftruncate(fd, 0) != 0)
        return std::unexpected(errno_error("begin anew", "the output file"));
    if (fsetxattr(fd, kAttribute, job.data(), job.size(), 0) != 0 && errno != ENOTSUP)
        return std::unexpected(errno_error("mark", "the output file"));
    return true;
}

} // namespace singularity::task
