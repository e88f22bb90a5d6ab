// SPDX-License-Identifier: GPL-2.0-or-later
// Collectives as their definitions read: one element after the other, in the order of ranks. Conversions are
// the toolkit's own.
#pragma once

#include "proxy/protocol/collective.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace singularity::test {

using Buffer = std::vector<std::byte>;

[[nodiscard]] std::size_t size_of(std::uint32_t type);
// Values of the type that are ordinary numbers.
[[nodiscard]] Buffer values(std::mt19937_64 &random, std::uint32_t type, std::size_t count);

// What each rank must have in its output. The operation is rank 0's; scalars: of a premultiplied sum, by
// rank.
[[nodiscard]] std::vector<Buffer> reference(const protocol::CollectiveOperation &operation,
                                            const std::vector<Buffer> &inputs,
                                            const std::vector<Buffer> &scalars);

[[nodiscard]] std::string name_of(const protocol::CollectiveOperation &operation);

} // namespace singularity::test
