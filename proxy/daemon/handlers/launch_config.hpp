// SPDX-License-Identifier: GPL-2.0-or-later
// A launch as cuLaunchKernelEx takes it.
#pragma once

#include "call.hpp"
#include "proxy/protocol/launch.hpp"

#include <array>
#include <cstddef>

namespace singularity::proxyd::handlers {

// No memory but its own: a launch allocates nothing.
struct LaunchConfig {
    CUlaunchConfig config{};
    // One more than may travel: the cooperative launch is an attribute here.
    std::array<CUlaunchAttribute, protocol::kMostLaunchAttributes + 1> attributes;
};

// From the wire's attribute to the driver's; NOT_SUPPORTED where it holds what this device does not have.
[[nodiscard]] CUresult read_attribute(Call &call, const protocol::LaunchAttribute &wire,
                                      CUlaunchAttribute &out);
[[nodiscard]] CUresult fill(Call &call, const protocol::LaunchShape &shape, CUstream stream,
                            const driver_api::View &attributes, LaunchConfig &out);

// CU_LAUNCH_PARAM_BUFFER_POINTER and the rest, pointing to a parameter buffer.
class ParameterBuffer {
  public:
    explicit ParameterBuffer(const driver_api::View &parameters)
        : size_(parameters.bytes.size()),
          // The driver only reads it.
          extra_{CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte *>(parameters.bytes.data()),
                 CU_LAUNCH_PARAM_BUFFER_SIZE, &size_, CU_LAUNCH_PARAM_END} {}
    ParameterBuffer(const ParameterBuffer &) = delete;
    ParameterBuffer &operator=(const ParameterBuffer &) = delete;
    ParameterBuffer(ParameterBuffer &&) = delete;
    ParameterBuffer &operator=(ParameterBuffer &&) = delete;
    ~ParameterBuffer() = default;

    // A kernel without parameters has none of this.
    [[nodiscard]] void **extra() { return size_ == 0 ? nullptr : extra_.data(); }

  private:
    std::size_t size_;
    std::array<void *, 5> extra_;
};

} // namespace singularity::proxyd::handlers
