// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "common/error.hpp"

namespace singularity::task {

// This process' environment becomes one that fits what its job has now: allocation.hpp.
[[nodiscard]] Expected<void> fit_environment();

} // namespace singularity::task
