// SPDX-License-Identifier: GPL-2.0-or-later
// Values of a task's environment, as Slurm writes them.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::task {

// Nothing where the environment (NAME=value each) does not have the name.
[[nodiscard]] inline std::optional<std::string_view> value_of(const std::vector<std::string> &environment,
                                                              std::string_view name) {
    for (const std::string_view entry : environment)
        if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
            return entry.substr(name.size() + 1);
    return std::nullopt;
}

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
