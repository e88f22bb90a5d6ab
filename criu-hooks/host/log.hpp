// SPDX-License-Identifier: GPL-2.0-or-later
// criu's log: what in it says why something failed, in words that help.
#pragma once

#include "common/error.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace singularity::host {

// The errors in the text of a log, the first being the cause of the others, and what to do about the first
// one that is known. Only the beginning and the end of what is very long are read.
[[nodiscard]] std::string explain(std::string_view log);

// The same of an open file, or `otherwise` if there is no error in it.
[[nodiscard]] std::string summary_of(int log, const std::string &otherwise);

// Copies both, if they are open, to a file that only root can read.
[[nodiscard]] Expected<void> keep_log(int log, int complaints, const std::filesystem::path &target);

} // namespace singularity::host
