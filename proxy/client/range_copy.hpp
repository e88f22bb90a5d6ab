// SPDX-License-Identifier: GPL-2.0-or-later
// Copies of plain ranges, as a program asks for them.
#pragma once

#include "copy.hpp"

#include <cstdint>

namespace singularity::client {

// Wait::no: as cuMemcpyAsync, that is: a copy from pageable memory returns when the bytes have left it, one
// to pageable memory when they have arrived there, all others at once. Wait::yes: as cuMemcpy.
[[nodiscard]] CUresult copy_range(const Route &route, std::uint64_t stream, const Location &destination,
                                  const Location &source, std::uint64_t size, Wait wait);

} // namespace singularity::client
