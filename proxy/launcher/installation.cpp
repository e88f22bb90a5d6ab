// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/launcher/run.hpp"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

namespace singularity::launcher {

Expected<Installation> find_installation() {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
    const char *const directory = std::getenv("SINGULARITY_LIBDIR");
    Installation found;
    if (directory != nullptr) {
        found.directory = directory;
    } else {
        std::error_code error;
        const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
        if (error)
            return failure("read", "/proc/self/exe", error.message(), error.value());
        // Wherever the package was put, programs and libraries keep their places to each other.
        found.directory = (program.parent_path() / SINGULARITY_LIBDIR_FROM_PROGRAMS).lexically_normal();
    }
    for (const auto &file : {found.proxyd(), found.client(), found.nccl(), found.redirect()})
        if (access(file.c_str(), R_OK) != 0)
            return std::unexpected(errno_error(
                "find the proxy's files",
                fmt::format("{} (is the package installed? SINGULARITY_LIBDIR names another place)",
                            file.string())));
    return found;
}

} // namespace singularity::launcher
