// SPDX-License-Identifier: GPL-2.0-or-later
// Values of a task's environment, as Slurm writes them.
#pragma once

#include "common/exec.hpp" // value_of

#include <algorithm>
#include <string_view>
#include <vector>

namespace singularity::task {

// What stands between commas; views into the text.
[[nodiscard]] inline std::vector<std::string_view> parts_of(std::string_view text) {
    std::vector<std::string_view> out;
    while (!text.empty()) {
        out.push_back(text.substr(0, text.find(',')));
        text.remove_prefix(std::min(text.size(), out.back().size() + 1));
    }
    return out;
}

} // namespace singularity::task
