// SPDX-License-Identifier: GPL-2.0-or-later
// A program that is to run elsewhere as if it ran here: what it is started with, and the signals that are its
// own.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "node/init_messages.hpp"

#include <span>
#include <string>
#include <vector>

namespace singularity::spank {

// What a terminal or an administrator sends to end a program: it is the program's to answer.
[[nodiscard]] std::span<const int> signals_of_users();

// These signals, and changes of the terminal's size, are readable from now on, as signalfd(2) has them.
[[nodiscard]] Expected<UniqueFd> readable_signals(std::span<const int> numbers = signals_of_users());

// It runs as we do: environment, working directory, limits, umask.
[[nodiscard]] Expected<node::Program> describe_program(const std::vector<std::string> &command);

} // namespace singularity::spank
