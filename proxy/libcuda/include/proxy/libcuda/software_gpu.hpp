// SPDX-License-Identifier: GPL-2.0-or-later
// By what a device of the software GPU is known, whatever it is named: how its UUID begins.
#pragma once

#include <array>
#include <cstdint>

namespace singularity::libcuda {

// Of version 8 of RFC 9562: bits of one's own choice. The last two bytes number the device.
inline constexpr std::array<std::uint8_t, 14> kSoftwareGpuUuid{0x53, 0x47, 0x50, 0x55, 0x73, 0x6f, 0x86,
                                                               0x74, 0x8d, 0x67, 0x70, 0x75, 0x00, 0x00};

} // namespace singularity::libcuda
