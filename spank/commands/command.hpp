// SPDX-License-Identifier: GPL-2.0-or-later
// How a stand-in was called. Nothing but the C++ library.
#pragma once

#include <string>
#include <vector>

namespace singularity::commands {

struct Command {
    std::string path; // which it stands for
    std::vector<std::string> arguments;
    std::vector<std::string> environment;
};

} // namespace singularity::commands
