// SPDX-License-Identifier: GPL-2.0-or-later
// The driver: the client's libcuda.so.1, which this process has loaded or will load.
#pragma once

#include "driver.hpp"
#include "gate.hpp"

namespace singularity::nccl {

struct Loaded {
    Driver *driver = nullptr;
    Gate *gate = nullptr;
};

// Found and initialised by the first call; an error says why there is none, and is found again each time. It
// stays as long as the process.
[[nodiscard]] Expected<Loaded> load_driver();

} // namespace singularity::nccl
