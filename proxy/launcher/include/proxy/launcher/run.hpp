// SPDX-License-Identifier: GPL-2.0-or-later
// Runs a program on proxies of its own.
#pragma once

#include "common/error.hpp"

#include <string>
#include <vector>

namespace singularity::launcher {

struct RunOptions {
    unsigned devices = 1; // proxies; device N of the back end each
    std::string backend;  // a driver library by path; "software"; empty: NVIDIA's if this
                          // machine has it, else the software GPU
    std::vector<std::string> proxyd_arguments; // passed on to each singularity-proxyd
    bool statistics = false;                   // one line on stderr at the end
    std::vector<std::string> command;          // program and arguments; looked up in PATH
};

// The program's exit status; 128 + N if signal N ended it. Its end, and that of every proxy, has been waited
// for. An Error: it was not started.
[[nodiscard]] Expected<int> run(const RunOptions &options);

} // namespace singularity::launcher
