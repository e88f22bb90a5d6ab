// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::collectives {

inline constexpr log::Channel kLog("collectives");

} // namespace singularity::collectives
