// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::client {

inline constexpr log::Channel kLog("cuda");

} // namespace singularity::client
