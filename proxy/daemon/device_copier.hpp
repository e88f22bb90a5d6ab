// SPDX-License-Identifier: GPL-2.0-or-later
// Device memory to and from this process in pieces.
#pragma once

#include "common/error.hpp"
#include "driver_api/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::proxyd {

class Slabs;

// For one thread, with a context of the device current. What lies in slabs may be in memory of the host.
class DeviceCopier {
  public:
    DeviceCopier(const driver_api::Backend &driver, Slabs &slabs, std::size_t piece);
    ~DeviceCopier();
    DeviceCopier(const DeviceCopier &) = delete;
    DeviceCopier &operator=(const DeviceCopier &) = delete;
    DeviceCopier(DeviceCopier &&) = delete;
    DeviceCopier &operator=(DeviceCopier &&) = delete;

    [[nodiscard]] Expected<void> read(std::uint64_t address, std::span<std::byte> bytes);
    // Through memory that the driver knows; at most a piece.
    [[nodiscard]] Expected<void> write(std::uint64_t address, std::span<const std::byte> bytes);
    [[nodiscard]] Expected<void> zero(std::uint64_t address, std::uint64_t size);

  private:
    void get_ready();
    [[nodiscard]] Expected<void> result(CUresult result, const char *doing, std::uint64_t address,
                                        std::uint64_t size) const;

    const driver_api::Backend &driver_;
    Slabs &slabs_;
    std::size_t size_; // of a piece
    std::vector<std::byte> memory_;
    std::span<std::byte> piece_; // whole pages of it
    bool registered_ = false;
};

} // namespace singularity::proxyd
