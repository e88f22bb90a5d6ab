// SPDX-License-Identifier: GPL-2.0-or-later
// The sockets in a node's directory at which stand-ins ask for Slurm's commands (../commands): one for each
// rank, behind which is the wrapper that stands for it; and who asks there. Nothing but the C++ library.
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

// Numbers by which stand-ins of srun are known wherever the node is: none that Slurm gives to a step, in as
// many digits.
inline constexpr std::uint32_t kLeastStandIn = 1'000'000'000;
inline constexpr std::uint32_t kStandInsEnd = 4'000'000'000;

} // namespace singularity::node
