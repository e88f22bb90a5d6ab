// SPDX-License-Identifier: GPL-2.0-or-later
// Why a program's variables lie where they lay, in another process of the same driver.
#pragma once

#include "common/error.hpp"

namespace singularity::proxyd {

// NVIDIA's driver decides where the variables of modules lie, and a program that has asked for an address
// keeps it in its image. Two things make the driver decide alike in every process:
// - the process's own mappings lie where they lie in every other: address space layout randomisation is off.
// That takes
//   effect with an exec: the program is started again, with the same arguments.
// - modules are loaded in the order of the calls that load them, and not when a kernel is first launched
//   (CUDA_MODULE_LOADING=EAGER), since launches are not repeated after a restore.
// Call it before anything else. Returns when both hold; an error: they cannot be had.
[[nodiscard]] Expected<void> want_same_addresses(char **argv);

} // namespace singularity::proxyd
