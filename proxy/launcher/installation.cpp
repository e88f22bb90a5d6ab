// SPDX-License-Identifier: GPL-2.0-or-later
#include "installation.hpp"

#include "common/installation.hpp"

#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace singularity::launcher {

Expected<Installation> find_installation() {
    auto directory = library_directory();
    if (!directory)
        return propagate(directory);
    Installation found{*std::move(directory)};
    for (const auto &file : {found.proxyd(), found.client(), found.nccl(), found.redirect()})
        if (access(file.c_str(), R_OK) != 0)
            return std::unexpected(errno_error(
                "find the proxy's files",
                fmt::format("{} (is the package installed? SINGULARITY_LIBDIR names another place)",
                            file.string())));
    return found;
}

} // namespace singularity::launcher
