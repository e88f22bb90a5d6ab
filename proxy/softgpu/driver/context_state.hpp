// SPDX-License-Identifier: GPL-2.0-or-later
// What streams see of their context while they work.
#pragma once

#include "driver/result.hpp"

#include <atomic>

namespace singularity::softgpu::driver {

class ContextState {
  public:
    // Once it is set no work begins, and what runs ends as soon as it looks.
    std::atomic<bool> cancelled{false};

    [[nodiscard]] CUresult error() const { return error_.load(std::memory_order_acquire); }
    // Keeps the first.
    void fail(CUresult why) {
        CUresult none = CUDA_SUCCESS;
        error_.compare_exchange_strong(none, why, std::memory_order_acq_rel);
    }

  private:
    std::atomic<CUresult> error_{CUDA_SUCCESS};
};

} // namespace singularity::softgpu::driver
