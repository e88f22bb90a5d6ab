// SPDX-License-Identifier: GPL-2.0-or-later
// Which of a node's doors a stand-in takes. Ranks end one after the other, and with each the commands that
// its wrapper runs: so a command is for the wrapper of the rank whose process asks for it. Nothing but the C
// and C++ libraries.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace singularity::commands {

// Whose process this is: what SLURM_PROCID was when the first of its ancestors that had one was started,
// since a program may clear or change it later. Nothing: none had one.
[[nodiscard]] std::optional<std::uint32_t> rank_of_this_process();

// Paths of all doors in this directory.
[[nodiscard]] std::vector<std::string> doors_in(const std::string &directory);

} // namespace singularity::commands
