// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::peers {

inline constexpr log::Channel kLog("peers");

} // namespace singularity::peers
