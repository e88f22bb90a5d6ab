// SPDX-License-Identifier: GPL-2.0-or-later
// Removing a job's own directories.
#pragma once

#include "common/error.hpp"
#include "tree.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace singularity::local {

// Removes what was set aside, whosever files are in it, as root and through descriptors alone: no link is
// followed, nothing that is mounted in it is entered. A tree that takes more than a minute, and one that
// cannot be removed, stays aside, with as much gone as could be. Users take turns, one tree each, so that
// nobody's hold up another's for longer than that. For a process that may wait.
[[nodiscard]] std::vector<Error> remove_set_aside(const std::filesystem::path &base);

// What is in BASE: trees, and whether something is set aside.
struct FoundTree {
    std::string name;
    Identity identity;
    std::optional<std::uint32_t> run; // as run_of
};
struct Found {
    std::vector<FoundTree> trees;
    bool aside = false;
};
// Nothing where there is no BASE.
[[nodiscard]] Expected<Found> look_into(const std::filesystem::path &base);

} // namespace singularity::local
