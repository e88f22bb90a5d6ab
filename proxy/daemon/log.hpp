// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::proxyd {

inline constexpr log::Channel kLog("proxyd");

} // namespace singularity::proxyd
