// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes as a descriptor, for messages that are longer than a packet.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::channel {

[[nodiscard]] Expected<UniqueFd> to_memory_file(std::span<const std::byte> bytes);
// The first bytes of a file in memory that somebody else may change meanwhile: what was read counts. Refuses
// every other file.
[[nodiscard]] Expected<std::vector<std::byte>> from_memory_file(int file, std::uint64_t size,
                                                                std::uint64_t limit);

} // namespace singularity::channel
