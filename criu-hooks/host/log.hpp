// SPDX-License-Identifier: GPL-2.0-or-later
// criu's log: what in it says why something failed, in words that help.
#pragma once

#include "common/error.hpp"

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

namespace singularity::host {

// The errors in the text of a log, the first being the cause of the others, and what to do about the first
// one that is known. Only the beginning and the end of what is very long are read.
[[nodiscard]] std::string explain(std::string_view log);

// The last lines of a log in which there is no error, escaped and cut: a process that was killed, or that has
// crashed, says what it was at and not why it ended.
[[nodiscard]] std::string last_words(std::string_view log);

// What explains a failure in these open files (-1: there is none); if there is no error in any of them
// `otherwise`, and the last that was written to each.
[[nodiscard]] std::string summary_of(std::initializer_list<int> logs, const std::string &otherwise);

// Copies both, if they are open, to a file that only root can read.
[[nodiscard]] Expected<void> keep_log(int log, int complaints, const std::filesystem::path &target);

} // namespace singularity::host
