// SPDX-License-Identifier: GPL-2.0-or-later
// Why a program's variables lie where they lay, in another process of the same driver.
#pragma once

#include "common/error.hpp"

namespace singularity::proxyd {

// NVIDIA's driver decides where the variables of modules lie, and a program that has asked for an address
// keeps it in its image. What makes it decide alike in every process, beside an area of its own for its
// mappings (driver_mappings.hpp):
//
// - Address space layout randomisation is off, so the process's mappings lie alike. That takes effect with an
//   exec: the program is started again, with the same arguments.
// - CUDA_MODULE_LOADING is EAGER, so modules are loaded by the calls that load them, and not when a kernel is
//   first launched: launches are not repeated after a restore.
// - SINGULARITY_SOFTGPU_ADDRESSES is system, where mappings are placed: the software GPU then decides as that
//   driver does.
//
// Before the driver's library is opened, and before anything that an exec would lose. An error: they cannot
// be had, and the process goes on as it is.
[[nodiscard]] Expected<void> want_same_addresses(char **argv);

} // namespace singularity::proxyd
