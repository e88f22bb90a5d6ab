// SPDX-License-Identifier: GPL-2.0-or-later
// The layout of a function's parameters, for who asks and for who reads a node's parameters.
#pragma once

#include "call.hpp"
#include "proxy/protocol/code.hpp"

#include <expected>
#include <vector>

namespace singularity::proxyd::handlers {

// real: a CUfunction, or with `kernel` a CUkernel.
[[nodiscard]] std::expected<std::vector<protocol::ParameterPlace>, CUresult>
layout_of(const driver_api::Backend &driver, std::uint64_t real, bool kernel);

} // namespace singularity::proxyd::handlers
