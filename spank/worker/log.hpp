// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::worker {

inline constexpr log::Channel kLog("worker");

} // namespace singularity::worker
