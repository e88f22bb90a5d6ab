// SPDX-License-Identifier: GPL-2.0-or-later
// The names of files in one directory, as they were at a checkpoint: for programs that rotate their logs.
#pragma once

#include "directory.hpp"
#include "written_files.hpp"

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::host {

struct NamesBack {
    uid_t uid = 0;
    std::vector<WrittenFile> files;
    // Identities of all files that the checkpoint speaks of: nothing takes their place.
    const std::set<std::string> *wanted = nullptr;
    // Whether what has become of the file may be the node's own doing, and nobody else uses it.
    std::function<bool(const FileThere &)> may_change;
    // Before a file is replaced or removed, if that is wanted: its name in the directory, and why.
    std::function<Expected<void>(const std::string &, std::string_view)> keep_aside;
};

// Files that are there under another name get back the one that they had, over what has it now, unless that
// is itself one that is wanted; two that have each other's name change them. Where a log was rotated, those
// that have been added since are removed. Nothing happens in directories of more than kMostNames names.
[[nodiscard]] Expected<void> put_names_back(const Directory &directory, const NamesBack &request);

} // namespace singularity::host
