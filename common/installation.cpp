// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/installation.hpp"

#include <cstdlib>
#include <system_error>

namespace singularity {

Expected<std::filesystem::path> library_directory() {
    if (const char *const chosen = std::getenv("SINGULARITY_LIBDIR"); chosen != nullptr && *chosen != '\0')
        return chosen;
    std::error_code error;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error)
        return std::unexpected(errno_error("read", "/proc/self/exe", error.value()));
    // Wherever the package was put, programs and libraries keep their places to each other.
    return (program.parent_path() / SINGULARITY_LIBDIR_FROM_PROGRAMS).lexically_normal();
}

} // namespace singularity
