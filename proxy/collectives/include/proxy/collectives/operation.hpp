// SPDX-License-Identifier: GPL-2.0-or-later
// What an operation means for one rank, from its numbers alone.
#pragma once

#include "proxy/protocol/collective.hpp"

#include <cstdint>

namespace singularity::collectives {

// Why it cannot be carried out by this rank of so many; nullptr: it can.
[[nodiscard]] const char *wrong(const protocol::CollectiveOperation &operation, std::uint32_t rank,
                                std::uint32_t size);

// Bytes that a checked operation reads at `input` and writes at `output`.
struct Extent {
    std::uint64_t input = 0;
    std::uint64_t output = 0;
};
[[nodiscard]] Extent extent(const protocol::CollectiveOperation &operation, std::uint32_t rank,
                            std::uint32_t size);

} // namespace singularity::collectives
