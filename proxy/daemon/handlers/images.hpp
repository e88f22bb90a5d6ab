// SPDX-License-Identifier: GPL-2.0-or-later
// A module image says its own length, and the driver believes it: it must not say more than what is there.
#pragma once

#include <cstddef>
#include <span>

namespace singularity::proxyd::handlers {

// Whether a fatbin or an ELF file lies wholly inside these bytes. What is neither is text, and ends at its
// NUL.
[[nodiscard]] bool is_whole(std::span<const std::byte> image);

} // namespace singularity::proxyd::handlers
