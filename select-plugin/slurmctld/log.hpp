// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity {

inline constexpr log::Channel kLog("slurmctld");

} // namespace singularity
