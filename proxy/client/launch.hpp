// SPDX-License-Identifier: GPL-2.0-or-later
// What a launch is made of: the same for cuLaunchKernel and its like and for kernel nodes of graphs.
#pragma once

#include "objects.hpp"
#include "proxy/protocol/launch.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::client {

// The `extra` parameter of cuLaunchKernel: where the parameter buffer is.
struct ParameterSource {
    void **each = nullptr;            // kernelParams
    std::span<const std::byte> whole; // extra
    bool is_whole = false;
};
[[nodiscard]] CUresult parameter_source(void **kernel_params, void **extra, ParameterSource &source);

struct Launchable {
    CodeObject *code = nullptr;
    const KernelLayout *layout = nullptr;
};
// A function or a kernel; the route is where it will run.
[[nodiscard]] CUresult launchable(CUfunction function, const Route &route, Launchable &out);

// Bytes of the parameter buffer. INVALID_VALUE where the source cannot be the kernel's.
[[nodiscard]] CUresult parameter_bytes(const KernelLayout &layout, const ParameterSource &source,
                                       std::size_t &bytes);
void copy_parameters(const KernelLayout &layout, const ParameterSource &source, std::span<std::byte> to);

// What the driver says at once about shapes that no device can run.
[[nodiscard]] CUresult check_shape(const Route &route, const Launchable &what,
                                   const protocol::LaunchShape &shape);

// CUlaunchAttributes as they travel; NOT_SUPPORTED for those that cannot.
[[nodiscard]] CUresult launch_attributes(const CUlaunchAttribute *attributes, unsigned count,
                                         std::vector<protocol::LaunchAttribute> &out);

} // namespace singularity::client
