// SPDX-License-Identifier: GPL-2.0-or-later
// The kernels of reductions.cu in one context.
#pragma once

#include "common/error.hpp"
#include "driver_api/backend.hpp"
#include "proxy/collectives/device.hpp"
#include "proxy/protocol/collective.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

namespace singularity::proxyd {

// PTX of reductions.cu; a zero follows it.
extern const std::string_view kReductionsPtx;

class ReductionKernels {
  public:
    // In the current context, with which they go. All of it is loaded now: what a driver loads later may wait
    // for the context's work, and that may be waiting for us.
    [[nodiscard]] static Expected<std::shared_ptr<const ReductionKernels>>
    load(const driver_api::Backend &driver);

    // In that context.
    [[nodiscard]] CUresult reduce(CUstream stream, const collectives::DeviceReduction &reduction) const;
    [[nodiscard]] CUresult scale(CUstream stream, std::uint32_t type, std::uint64_t values,
                                 const collectives::Scalar &scalar, std::uint64_t count) const;

  private:
    explicit ReductionKernels(const driver_api::Backend &driver) : driver_(driver) {}
    [[nodiscard]] CUresult launch(CUstream stream, CUfunction function, std::uint32_t type,
                                  std::uint64_t count, void *arguments) const;

    struct OfType {
        CUfunction reduce = nullptr;
        CUfunction scale = nullptr;
    };
    const driver_api::Backend &driver_;
    std::array<OfType, protocol::kDataTypes> functions_{};
};

} // namespace singularity::proxyd
