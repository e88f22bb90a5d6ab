// SPDX-License-Identifier: GPL-2.0-or-later
// A process that looks like one of Slurm's commands to whoever has started it, while the command itself runs
// outside of the node. Nothing but the C and C++ libraries.
#pragma once

#include "command.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace singularity::commands {

// Runners' sockets in the node.
struct Doors {
    std::string directory;
    std::optional<std::uint32_t> rank; // the one of this rank, if it can be
};

// So often, and so long after one another, it tries to connect: for 15 minutes. They are counted, because a
// checkpoint and another host's clock may lie between.
struct Patience {
    int attempts = 18000;
    int pause_ms = 50;
    int at_own = 40; // of them, at first, only at the rank's own door
};

// Asks a runner to run the command, with the streams, directory, limits, mask and ignored signals
// of this process, whose signals are all blocked from now on. The exit status; where a signal has ended the
// command, it ends this process, too.
[[nodiscard]] int stand_for(const Command &command, const Doors &doors, const Patience &patience = {});

} // namespace singularity::commands
