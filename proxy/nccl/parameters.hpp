// SPDX-License-Identifier: GPL-2.0-or-later
// ncclParam*: what NCCL can be set to. It has no parameters here: they are about channels, networks and
// algorithms that the proxy does not have. So no name is known, and no program has a handle.
#pragma once

#include "outcome.hpp"
#include "proxy/nccl/device_abi.hpp"

namespace singularity::nccl {

[[nodiscard]] Result bind_parameter(Parameter *const *out, const char *key);
// ncclParamGet*; call: its name.
[[nodiscard]] Result get_parameter(const char *call, const Parameter *handle, const void *out);
[[nodiscard]] Result find_parameter(const char *key, const char **value, int *length);
[[nodiscard]] Result all_parameters(const char ***table, int *length);

} // namespace singularity::nccl
