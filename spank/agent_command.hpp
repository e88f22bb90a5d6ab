// SPDX-License-Identifier: GPL-2.0-or-later
// What singularityctl's commands that ask the node agent have in common.
#pragma once

#include "common/error.hpp"

#include <filesystem>
#include <functional>

namespace CLI {
class App;
}

namespace singularity::spank {

// A command with the option --socket. When it is given, the action runs; `status`, the program's, becomes
// what it returns, or EXIT_FAILURE with its error printed. `socket`, which may be the action's own, and
// `status` must live until then.
CLI::App *add_agent_command(CLI::App &app, const char *name, const char *help, std::filesystem::path &socket,
                            std::function<Expected<int>()> action, int &status);

} // namespace singularity::spank
