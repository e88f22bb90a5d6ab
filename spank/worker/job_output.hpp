// SPDX-License-Identifier: GPL-2.0-or-later
// What the coordinator of a job has written down of its ranks' output: files with holes at the beginning,
// where it has been given back (agent/output/spool.hpp). They are a part of the job's checkpoints.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/reader.hpp"
#include "criu-hooks/store/writer.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace singularity::worker {

// Of each rank, up to a length.
[[nodiscard]] Expected<void> store_outputs(const std::filesystem::path &directory,
                                           std::span<const std::uint64_t> lengths, store::Writer &writer,
                                           const std::string &job);
// As new files of the same name, in an empty directory.
[[nodiscard]] Expected<void> load_outputs(const store::Checkpoint &checkpoint,
                                          const std::filesystem::path &directory);

// The same content and the same holes.
[[nodiscard]] Expected<void> copy_with_holes(const std::filesystem::path &from,
                                             const std::filesystem::path &to);

} // namespace singularity::worker
