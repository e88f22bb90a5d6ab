// SPDX-License-Identifier: GPL-2.0-or-later
#include "agent_command.hpp"

#include <cstdlib>
#include <iostream>
#include <utility>

#include <CLI/CLI.hpp>

namespace singularity::spank {

CLI::App *add_agent_command(CLI::App &app, const char *name, const char *help, std::filesystem::path &socket,
                            std::function<Expected<int>()> action, int &status) {
    CLI::App *const command = app.add_subcommand(name, help);
    command->add_option("--socket", socket, "the node agent's socket")
        ->envname("SINGULARITY_AGENT_SOCKET")
        ->capture_default_str();
    command->callback([action = std::move(action), &status] {
        const auto done = action();
        if (!done)
            std::cerr << "singularityctl: " << done.error().message() << '\n';
        status = done ? *done : EXIT_FAILURE;
    });
    return command;
}

} // namespace singularity::spank
