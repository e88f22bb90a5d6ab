// SPDX-License-Identifier: GPL-2.0-or-later
// What criu measured.
#pragma once

#include "common/error.hpp"

#include <chrono>

namespace singularity::host {

// How long a dump kept the node's processes from running.
[[nodiscard]] Expected<std::chrono::microseconds> frozen_time(int images);

} // namespace singularity::host
