// SPDX-License-Identifier: GPL-2.0-or-later
// Which processes and threads an image is of: CRIU's pstree.img.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace singularity::host {

struct ProcessEntry {
    std::uint64_t pid = 0;
    std::vector<std::uint64_t> threads; // the first thread, too
};

// At least one.
[[nodiscard]] Expected<std::vector<ProcessEntry>> processes_in(int images);

// The image file of a thread's registers, signals and credentials.
[[nodiscard]] inline std::string core_file(std::uint64_t thread) {
    return fmt::format("core-{}.img", thread);
}

} // namespace singularity::host
