// SPDX-License-Identifier: GPL-2.0-or-later
// singularityctl run: a program in a virtual node of its own.
#pragma once

#include "agent/protocol/agent_messages.hpp"
#include "common/error.hpp"
#include "node/record.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace singularity::spank {

struct RunInNode {
    std::filesystem::path socket; // the agent's
    node::Spec spec;              // name, hostname, address: empty for the agent's choice
    bool detach = false;          // print the node's name and leave
    bool terminal = false;        // even if standard output is none
    std::string directory;        // to work in, in the node; empty: the caller's
    std::vector<std::string> command;
};

// The program's exit status; 128 + N if signal N ended it. The node has ended, unless detached. An Error: it
// was not started.
[[nodiscard]] Expected<int> run_in_node(RunInNode options);

struct RestoreInNode {
    std::filesystem::path socket;
    std::string what;               // a checkpoint's id, or the name of a node or a job
    std::uint32_t proxies = 0;      // 0: one for each device of a node
    std::vector<std::string> hosts; // for the nodes of a job; empty: where they were
    bool label = false;             // each line of a job's output begins with its rank
    bool detach = false;            // nobody waits for the program, even if somebody did
    std::function<void(const agent::Progress &)> on_news;
    // tied: the program is waited for from now on.
    std::function<void(const agent::ImageReport &, bool tied)> on_restored;
};

// Continues a saved node or job. A program that somebody had waited for is waited for, as by run_in_node;
// else 0.
[[nodiscard]] Expected<int> restore_in_node(const RestoreInNode &options);

} // namespace singularity::spank
