// SPDX-License-Identifier: GPL-2.0-or-later
// Arguments and environment of programs, for execve(2). Nothing but the C++ library: singularity-init, which
// links none of this, includes it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace singularity {

// Arguments or an environment as execve(2) takes them: pointers to the texts, which must outlive them, and a
// null pointer. exec does not write to the texts, whatever its type says.
[[nodiscard]] inline std::vector<char *> exec_list(std::vector<std::string> &texts) {
    std::vector<char *> out;
    out.reserve(texts.size() + 1);
    for (auto &text : texts)
        out.push_back(text.data());
    out.push_back(nullptr);
    return out;
}

// Nothing where the environment (NAME=value each) does not have the name.
[[nodiscard]] inline std::optional<std::string_view> value_of(const std::vector<std::string> &environment,
                                                              std::string_view name) {
    for (const std::string_view entry : environment)
        if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
            return entry.substr(name.size() + 1);
    return std::nullopt;
}

// value: nothing, and the name goes.
inline void set_value(std::vector<std::string> &environment, std::string_view name,
                      std::optional<std::string_view> value) {
    const auto found = std::ranges::find_if(environment, [&](std::string_view entry) {
        return entry.starts_with(name) && entry.substr(name.size()).starts_with('=');
    });
    if (!value) {
        if (found != environment.end())
            environment.erase(found);
        return;
    }
    std::string entry(name);
    entry += '=';
    entry += *value;
    if (found == environment.end())
        environment.push_back(std::move(entry));
    else
        *found = std::move(entry);
}

} // namespace singularity
