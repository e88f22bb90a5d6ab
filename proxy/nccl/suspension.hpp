// SPDX-License-Identifier: GPL-2.0-or-later
// Communicators that are suspended and resumed, and what memory they have. A communicator has no memory of
// the program's device: what it stages is its proxies' (docs/collectives.md), and stays. So to suspend one is
// to keep its operations out until it is resumed. Functions are NCCL's.
#pragma once

#include "communicator.hpp"

#include <cstdint>

namespace singularity::nccl {

[[nodiscard]] Result suspend(Library &library, CommunicatorHandle handle, int flags);
[[nodiscard]] Result resume(Library &library, CommunicatorHandle handle);
// out: bytes, or 0 or 1.
[[nodiscard]] Result memory_statistic(Library &library, CommunicatorHandle handle, MemoryStatistic which,
                                      std::uint64_t *out);

} // namespace singularity::nccl
