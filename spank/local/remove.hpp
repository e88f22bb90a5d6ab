// SPDX-License-Identifier: GPL-2.0-or-later
// Removing a job's own directories.
#pragma once

#include "common/error.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace singularity::local {

// Removes what was set aside. The programs that look for files run with the user's ids. For a process with
// one thread that may wait for as long as it takes. What cannot be removed stays aside.
[[nodiscard]] std::vector<Error> remove_set_aside(const std::filesystem::path &base);

// Names in BASE: of trees, and whether something is set aside.
struct Found {
    std::vector<std::string> trees;
    bool aside = false;
};
// Nothing where there is no BASE.
[[nodiscard]] Expected<Found> look_into(const std::filesystem::path &base);

} // namespace singularity::local
