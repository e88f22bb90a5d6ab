// SPDX-License-Identifier: GPL-2.0-or-later
// singularityctl run: a program in a virtual node of its own.
#pragma once

#include "common/error.hpp"
#include "node/record.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace singularity::spank {

struct RunInNode {
    std::filesystem::path socket; // the agent's
    node::Spec spec;              // name, hostname, address: empty for the agent's choice
    bool detach = false;          // print the node's name and leave
    bool terminal = false;        // even if standard output is none
    std::vector<std::string> command;
};

// The program's exit status; 128 + N if signal N ended it. The node has ended, unless detached. An Error: it
// was not started.
[[nodiscard]] Expected<int> run_in_node(RunInNode options);

} // namespace singularity::spank
