// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/channel/memory_file.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::channel {

Expected<UniqueFd> to_memory_file(std::span<const std::byte> bytes) {
    UniqueFd file(memfd_create("singularity-message", MFD_CLOEXEC));
    if (!file)
        return std::unexpected(errno_error("make", "a memory file"));
    for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t written =
            pwrite(file.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return std::unexpected(errno_error("write", "a memory file"));
        at += static_cast<std::size_t>(written);
    }
    return file;
}

Expected<std::vector<std::byte>> from_memory_file(int file, std::uint64_t size, std::uint64_t limit) {
    const auto refuse = [](std::string why) {
        return failure("read", "a message in a memory file", std::move(why), EPROTO);
    };
    if (size > limit)
        return refuse(fmt::format("it has {} bytes; {} are allowed", size, limit));
    // Only files in memory have seals: reading one of a file system of its sender's could wait for ever.
    if (fcntl(file, F_GET_SEALS) < 0)
        return refuse("it is in a file that is not in memory");
    struct stat about{};
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || std::cmp_less(about.st_size, size))
        return refuse("it is shorter than its sender says");
    std::vector<std::byte> bytes(size);
    for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t got = pread(file, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return refuse("it ends before its end");
        at += static_cast<std::size_t>(got);
    }
    return bytes;
}

} // namespace singularity::channel
