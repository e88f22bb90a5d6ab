// SPDX-License-Identifier: GPL-2.0-or-later
// The sockets that the processes of a node have.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <map>
#include <string>

#include <sys/types.h>

namespace singularity::host {

struct HeldSocket {
    pid_t pid = 0;
    int number = 0;
    std::string what; // "descriptor 5 of process 27 (python3)"
};
// By inode; of several descriptors of a socket one.
using HeldSockets = std::map<std::uint64_t, HeldSocket>;
[[nodiscard]] Expected<HeldSockets> held_sockets(pid_t init);

} // namespace singularity::host
