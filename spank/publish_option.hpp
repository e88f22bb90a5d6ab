// SPDX-License-Identifier: GPL-2.0-or-later
// What --singularity-publish says: ports of a job's virtual nodes that are reached from outside of the job.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace singularity::spank {

// Of one virtual node; as network::kPublishedLimit.
inline constexpr std::size_t kMostPublished = 16;
// "PORT[,PORT...]", TCP ports from 1 to 65535; each once, and no more than kMostPublished. option: as the
// user has written it.
[[nodiscard]] Expected<std::vector<std::uint16_t>>
parse_published_ports(std::string_view text, std::string_view option = "--singularity-publish");

} // namespace singularity::spank
