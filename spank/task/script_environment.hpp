// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/error.hpp"

#include <cstdint>

namespace singularity::task {

// This process' environment becomes one that fits what its job has now: allocation.hpp.
// The number of GPUs of the job; 0: nothing in its environment asks for any.
[[nodiscard]] Expected<std::uint32_t> fit_environment();

} // namespace singularity::task
