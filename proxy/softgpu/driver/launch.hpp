// SPDX-License-Identifier: GPL-2.0-or-later
// Launches of kernels: checked against the kernel's and the device's limits before they are queued.
#pragma once

#include "driver/context.hpp"
#include "driver/module.hpp"
#include "driver/operation.hpp"

#include <span>
#include <vector>

namespace singularity::softgpu::driver {

// `parameters` or `extra` as in cuLaunchKernel; config.hStream is not looked at.
[[nodiscard]] Result<KernelOperation> make_kernel(Context &context, CUfunction function,
                                                  const CUlaunchConfig &config, void **parameters,
                                                  void **extra);
[[nodiscard]] CUresult launch(Context &context, CUfunction function, const CUlaunchConfig &config,
                              void **parameters, void **extra);
[[nodiscard]] CUlaunchConfig launch_config(const unsigned (&grid)[3], const unsigned (&block)[3],
                                           unsigned shared, CUstream stream);

// Blocks of one multiprocessor that run at once (occupancy.cpp).
[[nodiscard]] int resident_blocks(Function &function, int block_size, std::uint64_t dynamic_shared);
// What cuFuncGetAttribute and cuFuncSetAttribute do (functions.cpp).
[[nodiscard]] Result<int> attribute(Function &function, CUfunction_attribute attribute);
[[nodiscard]] CUresult set_attribute(Function &function, CUfunction_attribute attribute, int value);
// Offset and size of a kernel's parameter.
[[nodiscard]] CUresult parameter_info(const KernelInfo &info, std::size_t index, std::size_t *offset,
                                      std::size_t *size);

} // namespace singularity::softgpu::driver
