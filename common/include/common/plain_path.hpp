// SPDX-License-Identifier: GPL-2.0-or-later
// Paths that mean one place, whatever is there.
#pragma once

#include <algorithm>
#include <climits>
#include <string_view>

namespace singularity {

inline constexpr std::size_t kPlainPathLimit = 1024;

// Absolute and not the root; no empty name (//, a / at the end), no "." and ".."; no control characters,
// which would break a line of mountinfo or of a message.
[[nodiscard]] inline bool is_plain_path(std::string_view path) {
    if (!path.starts_with('/') || path.size() < 2 || path.size() > kPlainPathLimit)
        return false;
    for (std::string_view rest = path; !rest.empty();) {
        rest.remove_prefix(1); // the slash
        const auto name = rest.substr(0, rest.find('/'));
        if (name.empty() || name == "." || name == ".." || name.size() > NAME_MAX)
            return false;
        rest.remove_prefix(name.size());
    }
    return std::ranges::none_of(path,
                                [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
}

// Of two such paths, or their beginnings: whether one is the other or below it.
[[nodiscard]] inline bool is_in(std::string_view path, std::string_view top) {
    return path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '/');
}

} // namespace singularity
