// SPDX-License-Identifier: GPL-2.0-or-later
// Device memory to and from this process in pieces, through memory that the driver knows.
#pragma once

#include "common/error.hpp"
#include "driver_api/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::proxyd {

// For one thread, with a context of the device current.
class DeviceCopier {
  public:
    DeviceCopier(const driver_api::Backend &driver, std::size_t piece);
    ~DeviceCopier();
    DeviceCopier(const DeviceCopier &) = delete;
    DeviceCopier &operator=(const DeviceCopier &) = delete;
    DeviceCopier(DeviceCopier &&) = delete;
    DeviceCopier &operator=(DeviceCopier &&) = delete;

    // At most a piece; valid until the next call.
    [[nodiscard]] Expected<std::span<const std::byte>> read(std::uint64_t address, std::size_t size);
    [[nodiscard]] Expected<void> write(std::uint64_t address, std::span<const std::byte> bytes);
    [[nodiscard]] Expected<void> zero(std::uint64_t address, std::uint64_t size);

  private:
    void get_ready();
    [[nodiscard]] Expected<void> result(CUresult result, const char *doing, std::uint64_t address,
                                        std::uint64_t size) const;

    const driver_api::Backend &driver_;
    std::vector<std::byte> memory_;
    std::span<std::byte> piece_; // whole pages of it
    bool ready_ = false;
    bool registered_ = false;
};

} // namespace singularity::proxyd
