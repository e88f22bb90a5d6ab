// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/write_all.hpp"

#include <cerrno>

#include <unistd.h>

namespace singularity {

Expected<void> write_all(int fd, std::string_view data, std::string_view name) {
    while (!data.empty()) {
        const ssize_t written = ::write(fd, data.data(), data.size());
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) // of a file that takes nothing and has no error, the disk is full
            return std::unexpected(written < 0 ? errno_error("write", name)
                                               : errno_error("write", name, ENOSPC));
        data.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
}

} // namespace singularity
