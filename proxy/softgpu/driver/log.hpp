// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/log.hpp"

namespace singularity::softgpu::driver {

inline constexpr log::Channel kLog("softgpu");

} // namespace singularity::softgpu::driver
