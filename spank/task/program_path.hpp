// SPDX-License-Identifier: GPL-2.0-or-later
// Where a task's program is, found as slurmstepd finds it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace singularity::task {

// The first file of that name in the directories of `path` (a PATH, with colons; empty without one), whether
// or not it can be executed. What begins with a slash or a dot is not searched for; what is not found, or
// begins with a dot, is in the working directory.
[[nodiscard]] std::string program_path(const std::string &name, std::string_view path,
                                       const std::filesystem::path &working_directory);

} // namespace singularity::task
