// SPDX-License-Identifier: GPL-2.0-or-later
// Device memory at an address that was reserved, which all contexts of the device reach.
#pragma once

#include "back_end.hpp"
#include "proxy/collectives/device.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace singularity::proxyd {

// Makes memory and maps it there; the mapping keeps it until cuMemUnmap. on_host: memory of the host, that
// the device reaches; CUDA_ERROR_NOT_SUPPORTED where it cannot.
[[nodiscard]] CUresult map_memory(const BackEnd &back_end, std::uint64_t address, std::uint64_t size,
                                  bool on_host = false);
// Maps memory that there is; the handle stays the caller's.
[[nodiscard]] CUresult map_there(const BackEnd &back_end, std::uint64_t address, std::uint64_t size,
                                 CUmemGenericAllocationHandle memory);
// The same; the mapping keeps it, and the handle is gone, also after an error.
[[nodiscard]] CUresult map_left(const BackEnd &back_end, std::uint64_t address, std::uint64_t size,
                                CUmemGenericAllocationHandle memory);

// What ranks of this proxy stage for collectives among each other. It is no session's: no image has it, and
// it goes when the communicator does.
class StagingDevice final : public collectives::Device {
  public:
    // near: where to have it, so that programs have their memory where they would have it without us: a
    // driver may put what they ask for behind what there is.
    StagingDevice(const BackEnd &back_end, std::uint64_t near) : back_end_(back_end), near_(near) {}
    [[nodiscard]] Expected<std::shared_ptr<const collectives::DeviceMemory>> stage(std::size_t size) override;

  private:
    const BackEnd &back_end_;
    std::uint64_t near_;
    std::atomic<std::uint64_t> next_ = 0;
};

} // namespace singularity::proxyd
