// SPDX-License-Identifier: GPL-2.0-or-later
// What there is once per process: the configuration, the devices, the threads that run kernels.
#pragma once

#include "driver/config.hpp"
#include "driver/device.hpp"
#include "driver/result.hpp"
#include "engine/engine.hpp"

#include <memory>
#include <vector>

namespace singularity::softgpu::driver {

class Platform {
  public:
    explicit Platform(const Config &config, const std::vector<unsigned> &physical_ordinals);

    [[nodiscard]] const Config &config() const { return config_; }
    [[nodiscard]] const std::vector<std::unique_ptr<Device>> &devices() const { return devices_; }
    [[nodiscard]] Result<Device *> device(CUdevice ordinal) const;
    // Made with the first kernel, and never ended: a program may exit while kernels run.
    [[nodiscard]] Workers &workers();

  private:
    Config config_;
    std::vector<std::unique_ptr<Device>> devices_;
};

// cuInit. A failure is the same for every later call, and said once on stderr.
[[nodiscard]] CUresult initialize(unsigned flags);
// CUDA_ERROR_NOT_INITIALIZED before cuInit, and for ever in a process forked after it.
[[nodiscard]] CUresult initialized();
// Only after cuInit has succeeded.
[[nodiscard]] Platform &platform();

} // namespace singularity::softgpu::driver
