// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::network {

inline constexpr log::Channel kLog("network");

} // namespace singularity::network
