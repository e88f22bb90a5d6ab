// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::planner {

inline constexpr log::Channel kLog("planner");

} // namespace singularity::planner
