// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::spank {

inline constexpr log::Channel kLog("spank");

} // namespace singularity::spank
