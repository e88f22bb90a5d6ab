// SPDX-License-Identifier: GPL-2.0-or-later
// The batch script of an elastic job: a child of the wrapper, which is the process that Slurm signals. When
// Slurm ends a job that runs again later, the script must not notice: it would run on behind a step that was
// saved, or end and take its output with it.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace singularity::task {

// The script's wait status, or that of one that has ended well if it is to be run again.
[[nodiscard]] Expected<int> run_script(const std::filesystem::path &socket,
                                       const std::vector<std::string> &command);

// In the first run of a job that has not said what becomes of its output files, they begin anew.
[[nodiscard]] Expected<void> see_to_outputs(std::uint32_t restarts);

// Of the job whose script runs here: what says so in its output files (output.hpp). Nothing: none is known.
[[nodiscard]] std::optional<std::string> mark_of_outputs();

} // namespace singularity::task
