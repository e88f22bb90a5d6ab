// SPDX-License-Identifier: GPL-2.0-or-later
// A virtual node with nothing in it but what a host image needs: its own PID, mount, network, UTS and IPC
// namespaces, its own /proc, /dev, /tmp and loopback, and an init that has the job's ids.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace checkpoint {

struct NodeSpec {
    std::filesystem::path root; // a mount point whose content is the node's root directory
    std::filesystem::path
        shared; // under /tmp; bound at the same path: programs, output, and `init`, a copy of the driver
    uid_t uid = 0;
    gid_t gid = 0;
    bool keep_input = false; // false: standard input is the node's /dev/null
    std::vector<std::string> command;
};

// The init's process id, a child of the caller. Standard output and error are the caller's.
[[nodiscard]] singularity::Expected<pid_t> start_node(const NodeSpec &spec);

// Of the init: starts the command, reaps everybody, and ends as the command did.
[[nodiscard]] int run_as_init(char **command);

// A network namespace with nothing but loopback, up.
[[nodiscard]] singularity::Expected<singularity::UniqueFd> make_network();

} // namespace checkpoint
