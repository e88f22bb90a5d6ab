// SPDX-License-Identifier: GPL-2.0-or-later
// What the agent has been started with, for the SPANK plugin: a short file in memory, written when the agent
// starts. So a step costs one look at it where the site has no local directories, all of a host's jobs have
// the same ones, and a mistake in singularity.yaml touches nobody before the agent is started again.
#pragma once

#include "common/error.hpp"

#include <filesystem>
#include <optional>
#include <vector>

namespace singularity::local {

inline constexpr const char *kNotice = "local-directories"; // beside the agent's socket

struct Notice {
    std::filesystem::path base;
    std::vector<std::filesystem::path> paths; // empty: there are none
    bool operator==(const Notice &) const = default;
};
[[nodiscard]] Expected<void> leave_notice(const std::filesystem::path &file, const Notice &notice);
// Nothing: no agent has been started since the host was. An error: it is not root's, or not as we write it.
[[nodiscard]] Expected<std::optional<Notice>> read_notice(const std::filesystem::path &file);

} // namespace singularity::local
