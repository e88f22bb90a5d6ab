// SPDX-License-Identifier: GPL-2.0-or-later
// Host images between the directory in which CRIU writes and reads them and the checkpoint store.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/reader.hpp"
#include "criu-hooks/store/writer.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace singularity::host {

// All files of an image directory, as images of a virtual node of the checkpoint. Memory is cut by its
// address, so that what a process has not touched since the last checkpoint is found in the store and costs
// nothing. So are other files where the caller says: offsets of each, in ascending order.
using Cuts = std::map<std::string, std::vector<std::uint64_t>>;
[[nodiscard]] Expected<void> save(int images, store::Writer &writer, const std::string &node,
                                  const Cuts &of_files = {});

// Into an empty directory. `largest` bounds what all files together may take.
[[nodiscard]] Expected<void> load(const store::Checkpoint &checkpoint, const std::string &node, int images,
                                  std::uint64_t largest);

// What restore() needs of the checkpoint's other nodes, beside that.
[[nodiscard]] Expected<void> load_of_others(const store::Checkpoint &checkpoint, const std::string &node,
                                            int images);

// CRIU's tables of files of the checkpoint's other nodes: the names that they have in `images` then.
[[nodiscard]] Expected<std::vector<std::string>> load_tables_of_others(const store::Checkpoint &checkpoint,
                                                                       const std::string &node, int images);

} // namespace singularity::host
