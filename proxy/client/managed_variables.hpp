// SPDX-License-Identifier: GPL-2.0-or-later
// __managed__ variables: the driver puts them where only the daemon reaches them. The program gets a copy in
// managed memory; in front of each kernel of the library it is copied to the variable, and behind it back.
// Both are in the kernel's stream, so that whoever has waited for the kernel sees what it wrote, which is
// what CUDA promises where a device has no concurrent managed access. Kernels of one library in different
// streams at the same time may lose each other's changes.
#pragma once

#include "memory.hpp"

namespace singularity::client {

// The program's copy, made when it is first asked for.
[[nodiscard]] CUresult managed_variable(CodeObject &library, const char *name, std::uint64_t &address,
                                        std::uint64_t &size);

enum class Flow : bool { to_device, from_device };
// For a kernel of that library; does nothing where it has no such variables.
[[nodiscard]] CUresult move_managed_variables(const CodeObject &kernel, const Route &route,
                                              std::uint64_t stream, Flow flow);

} // namespace singularity::client
