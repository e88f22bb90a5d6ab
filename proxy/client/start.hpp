// SPDX-License-Identifier: GPL-2.0-or-later
// The beginning of a process's use of CUDA: its window and its sessions.
#pragma once

#include "proxy/libcuda/cuda.hpp"

namespace singularity::client {

// Connects to all daemons; the first caller does it, the others wait.
[[nodiscard]] CUresult start_process();

} // namespace singularity::client
