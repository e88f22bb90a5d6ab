// SPDX-License-Identifier: GPL-2.0-or-later
// The kernel of digest.cu in one context.
#pragma once

#include "common/error.hpp"
#include "digest.hpp"
#include "driver_api/backend.hpp"

#include <cstdint>
#include <memory>
#include <string_view>

namespace singularity::proxyd {

// PTX of digest.cu; a zero follows it.
extern const std::string_view kDigestPtx;

class DigestKernel {
  public:
    // In the current context, with which it goes. All that it needs is loaded and pinned now: later that may
    // wait for the context's work, and that may be waiting for us.
    [[nodiscard]] static Expected<std::shared_ptr<const DigestKernel>>
    load(const driver_api::Backend &driver);

    // In that context, of memory of the device; waits for it, and for what is before it in the stream.
    // address, size: multiples of 16. One at a time.
    [[nodiscard]] CUresult digest(CUstream stream, std::uint64_t address, std::uint64_t size,
                                  Digest &digest) const;

  private:
    explicit DigestKernel(const driver_api::Backend &driver) : driver_(driver) {}

    const driver_api::Backend &driver_;
    CUfunction function_ = nullptr;
    Digest *parts_ = nullptr; // memory of the host that the context has pinned
    CUdeviceptr parts_there_ = 0;
};

} // namespace singularity::proxyd
