// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::agent {

inline constexpr log::Channel kLog("agent");

} // namespace singularity::agent
