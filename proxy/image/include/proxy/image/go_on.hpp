// SPDX-License-Identifier: GPL-2.0-or-later
// Asked while an image is written or read.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <functional>

namespace singularity::image {

// Whether the work is to go on; an error says why not. Asked at least once for each piece.
using GoOn = std::function<Expected<void>(std::uint64_t bytes)>;

} // namespace singularity::image
