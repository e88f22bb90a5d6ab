// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_command.hpp"

#include "common/error.hpp"
#include "common/exec.hpp"
#include "common/installation.hpp"

#include <cerrno>
#include <cstdlib>
#include <iostream>

#include <CLI/CLI.hpp>
#include <unistd.h>

namespace singularity::spank {

int become_slurm_program(std::vector<std::string> arguments) {
    const auto fail = [](const Error &error) {
        std::cerr << "singularityctl: " << error.message() << '\n';
        return EXIT_FAILURE;
    };
    auto directory = library_directory();
    if (!directory)
        return fail(directory.error());
    const auto program = *directory / "singularity-slurm";
    arguments.insert(arguments.begin(), program.native());
    execv(program.c_str(), exec_list(arguments).data());
    auto error = errno_error("run", program.native());
    if (error.code == ENOENT)
        error.why += "; this build is without Slurm (package libslurm-dev)";
    return fail(error);
}

void add_slurm_commands(CLI::App &app, int &status) {
    struct Command {
        const char *name;
        const char *help;
    };
    for (const auto &[name, help] :
         {Command{"migrate",
                  "save a job of Slurm's that runs, and let it go on on other nodes: JOBID [--to NODE]"},
          Command{"resize",
                  "save a job of Slurm's, and let it go on with another number of GPUs: JOBID --gpus N"},
          Command{"status",
                  "elastic jobs of Slurm's, all about one, or what the planner thinks: [JOBID | --plan]"}}) {
        CLI::App *const command = app.add_subcommand(name, help);
        command->set_help_flag(); // it has one of its own
        command->prefix_command();
        command->callback([command, &status, word = std::string(name)] {
            auto arguments = command->remaining();
            arguments.insert(arguments.begin(), word);
            status = become_slurm_program(std::move(arguments));
        });
    }
}

} // namespace singularity::spank
