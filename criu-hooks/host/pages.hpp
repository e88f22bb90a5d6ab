// SPDX-License-Identifier: GPL-2.0-or-later
// Where in a file of pages one part of an address space ends and the next begins.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace singularity::host {

// For each file of pages in an image directory, by name: the offsets at which a chunk should begin,
// ascending, without 0.
//
// Pages follow each other in the file without gaps, so one page more at the front moves all others. The cuts
// go by address instead: at the limits of windows of kWindow bytes, so that a page that is new or gone
// changes the chunk of its window and no other. Windows with few pages (stacks, small libraries) stay
// together, or there would be thousands of tiny chunks.
[[nodiscard]] Expected<std::map<std::string, std::vector<std::uint64_t>>> page_cuts(int images);

inline constexpr std::uint64_t kWindow = std::uint64_t{1} << 20U;
inline constexpr std::uint64_t kFewBytes = std::uint64_t{64} << 10U;

} // namespace singularity::host
