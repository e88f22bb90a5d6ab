// SPDX-License-Identifier: GPL-2.0-or-later
// The fatbins of an image: one, or several that the driver links (protocol::kFatbinAlignment).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace singularity::proxyd {

inline constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;

// nullopt: it does not begin with a fatbin, or one says that it has more bytes than there are. What follows
// the last one is not looked at.
[[nodiscard]] std::optional<std::vector<std::span<const std::byte>>>
fatbins_of(std::span<const std::byte> image);

} // namespace singularity::proxyd
