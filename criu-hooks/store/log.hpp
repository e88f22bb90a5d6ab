// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::store {

inline constexpr log::Channel kLog("store");

} // namespace singularity::store
