// SPDX-License-Identifier: GPL-2.0-or-later
// Files in a node's local directories that it had open for writing when it was saved. Several nodes of a job
// may have the same directories, and are saved one after the other: such a file is to be as its own node's
// checkpoint has it, whichever of them is restored first.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <compare>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace singularity::worker {

struct LocalFile {
    std::string node;            // whose it is
    std::uint32_t directory = 0; // its number in Spec::local
    std::string name;            // from that directory on, as tar names it: "./a/b"
    auto operator<=>(const LocalFile &) const = default;
};
using LocalFiles = std::set<LocalFile>;

// paths: as the node sees them.
void add_below(LocalFiles &files, const std::string &node, std::uint32_t number, const std::string &directory,
               const std::vector<std::string> &paths);

// A file of that name in a directory that is root's. None there: nothing. What is read may be of a store that
// its user can write to.
[[nodiscard]] Expected<LocalFiles> read_local_files(int directory, const char *name);
// In the place of the one that is there. Code EOPNOTSUPP: it would be larger than what is read.
[[nodiscard]] Expected<void> write_local_files(int directory, const char *name, const LocalFiles &files);

// Those of `mine` in that directory that nobody of `others` has, as tar's --files-from --null reads them from
// a file. None: there are none.
[[nodiscard]] Expected<UniqueFd> names_for_tar(const LocalFiles &mine, const LocalFiles &others,
                                               std::uint32_t directory);

} // namespace singularity::worker
