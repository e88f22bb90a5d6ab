// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::launcher {

inline constexpr log::Channel kLog("proxy");

} // namespace singularity::launcher
