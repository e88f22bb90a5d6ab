// SPDX-License-Identifier: GPL-2.0-or-later
// Files that say what root's daemons do.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstddef>
#include <filesystem>
#include <string>

namespace singularity {

// It must be a regular file, owned by root or the effective user, and writable by nobody else. Never waits.
// Error ENOENT: there is none; EFBIG: it has more than `most` bytes.
[[nodiscard]] Expected<std::string> read_trusted_file(const std::filesystem::path &path, std::size_t most);

// All that is left of it. path: for errors alone.
[[nodiscard]] Expected<std::string> read_to_end(const UniqueFd &file, const std::filesystem::path &path,
                                                std::size_t most);

} // namespace singularity
