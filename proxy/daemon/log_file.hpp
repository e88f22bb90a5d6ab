// SPDX-License-Identifier: GPL-2.0-or-later
// Log lines in a file, so that whoever starts the daemon on a terminal sees there only what is wrong.
#pragma once

#include "common/error.hpp"

#include <filesystem>

namespace singularity::proxyd {

// From now on all lines go to the file (appended to), and warnings and errors to stderr as well. Once in a
// process.
[[nodiscard]] Expected<void> log_to(const std::filesystem::path &path);

} // namespace singularity::proxyd
