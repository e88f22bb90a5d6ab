// SPDX-License-Identifier: GPL-2.0-or-later
// The sockets in a node's directory at which stand-ins ask for Slurm's commands (../commands): one for each
// rank, behind which is the wrapper that stands for it. Nothing but the C++ library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace singularity::node {

inline constexpr std::string_view kDoorPrefix = "commands.";
inline constexpr std::string_view kDoorSuffix = ".sock";

[[nodiscard]] inline std::string door_name(std::uint32_t rank) {
    return std::string(kDoorPrefix) + std::to_string(rank) + std::string(kDoorSuffix);
}

} // namespace singularity::node
