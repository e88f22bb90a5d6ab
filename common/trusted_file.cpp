// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/trusted_file.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity {

namespace {

Expected<void> check(const UniqueFd &file, const std::filesystem::path &path, std::size_t most) {
    const auto refuse = [&](std::string why, int code) {
        return failure("read", path.native(), std::move(why), code);
    };
    struct stat status{};
    if (::fstat(file.get(), &status) != 0)
        return std::unexpected(errno_error("read", path.native()));
    if (!S_ISREG(status.st_mode))
        return refuse(fmt::format("expected a regular file, found {}",
                                  S_ISDIR(status.st_mode) ? "a directory" : "a device, socket or pipe"),
                      S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
    if (status.st_uid != 0 && status.st_uid != ::geteuid())
        return refuse(
            fmt::format("expected a file of root or of user {}, found one of user {}; fix: chown root {}",
                        ::geteuid(), status.st_uid, path.native()),
            EPERM);
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return refuse(
            fmt::format(
                "expected a file that only its owner may write, found mode {:04o}; fix: chmod go-w {}",
                status.st_mode & 07777U, path.native()),
            EPERM);
    if (std::cmp_greater(status.st_size, most))
        return refuse(fmt::format("expected at most {} bytes, found {}", most, status.st_size), EFBIG);
    return {};
}

} // namespace

Expected<std::string> read_to_end(const UniqueFd &file, const std::filesystem::path &path, std::size_t most) {
    std::string text;
    std::string part(65536, '\0');
    while (true) {
        const auto got = ::read(file.get(), part.data(), part.size());
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return std::unexpected(errno_error("read", path.native()));
        if (got == 0)
            return text;
        text.append(part, 0, static_cast<std::size_t>(got));
        // The file may grow.
        if (text.size() > most)
            return failure("read", path.native(), fmt::format("expected at most {} bytes, found more", most),
                           EFBIG);
    }
}

Expected<std::string> read_trusted_file(const std::filesystem::path &path, std::size_t most) {
    // O_NONBLOCK: opening a pipe would wait for a writer.
    auto file = open_file(path, O_RDONLY | O_NOCTTY | O_NONBLOCK);
    if (!file)
        return propagate(file);
    if (auto checked = check(*file, path, most); !checked)
        return propagate(checked);
    return read_to_end(*file, path, most);
}

} // namespace singularity
