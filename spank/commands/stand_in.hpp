// SPDX-License-Identifier: GPL-2.0-or-later
// A process that looks like one of Slurm's commands to whoever has started it, while the command itself runs
// outside of the node. Nothing but the C and C++ libraries.
#pragma once

#include <string>
#include <vector>

namespace singularity::commands {

struct Command {
    std::string path; // which it stands for
    std::vector<std::string> arguments;
    std::vector<std::string> environment;
};

// So often, and so long after one another, it tries to connect: for 15 minutes. They are counted, because a
// checkpoint and another host's clock may lie between.
struct Patience {
    int attempts = 18000;
    int pause_ms = 50;
};

// Asks the runner at `door` to run the command, with the streams, directory, limits, mask and ignored signals
// of this process, whose signals are all blocked from now on. The exit status; where a signal has ended the
// command, it ends this process, too.
[[nodiscard]] int stand_for(const Command &command, const std::string &door, const Patience &patience = {});

} // namespace singularity::commands
