// SPDX-License-Identifier: GPL-2.0-or-later
// singularity-command: in a virtual node it is mounted over each of Slurm's commands, which it stands for.
// The path of its executable tells which one; its own name (argv[0]) may be anything.
#include "command_messages.hpp"
#include "nearest_door.hpp"
#include "stand_in.hpp"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include <unistd.h>

int main(int argc, char **argv) {
    constexpr const char *kName = "singularity-command";
    try {
        std::string path(PATH_MAX, '\0');
        const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
        if (size < 0) {
            std::fprintf(stderr, "%s: cannot read /proc/self/exe: %s\n", kName, std::strerror(errno));
            return EXIT_FAILURE;
        }
        path.resize(static_cast<std::size_t>(size));
        singularity::commands::Command command{.path = path, .arguments{argv, argv + argc}, .environment{}};
        if (command.arguments.empty())
            command.arguments.push_back(path);
        for (char **entry = environ; *entry != nullptr; ++entry)
            command.environment.emplace_back(*entry);
        return singularity::commands::stand_for(command,
                                                {.directory = singularity::commands::kDoors,
                                                 .rank = singularity::commands::rank_of_this_process()});
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s: cannot go on: %s\n", kName, error.what());
        return EXIT_FAILURE;
    }
}
