// SPDX-License-Identifier: GPL-2.0-or-later
// What is in CUDA arrays, to and from this process. Nobody but the driver knows how texels lie in one, so
// they are copied as boxes; in an image they lie row behind row, slice behind slice, without gaps.
#pragma once

#include "common/error.hpp"
#include "driver_api/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace singularity::proxyd {

// Of an array, or of a level of a mipmapped one.
struct ArrayShape {
    std::uint64_t row = 0; // bytes
    std::uint64_t rows = 0;
    std::uint64_t slices = 0;

    [[nodiscard]] std::uint64_t slice() const { return row * rows; }
    [[nodiscard]] std::uint64_t size() const { return slice() * slices; }
};

class ArrayCopier {
  public:
    // For one thread, with the array's context current.
    ArrayCopier(const driver_api::Backend &driver, CUarray array) : driver_(driver), array_(array) {}

    // An error: texels of a format that cannot be saved, or memory that is not there as a whole.
    [[nodiscard]] Expected<ArrayShape> shape() const;

    // What can be read or written at once from `offset` on: bytes of one row, or whole rows of one slice.
    [[nodiscard]] static std::uint64_t piece_at(const ArrayShape &shape, std::uint64_t offset,
                                                std::uint64_t most);
    [[nodiscard]] Expected<void> read(const ArrayShape &shape, std::uint64_t offset,
                                      std::span<std::byte> bytes) const;
    [[nodiscard]] Expected<void> write(const ArrayShape &shape, std::uint64_t offset,
                                       std::span<const std::byte> bytes) const;

  private:
    [[nodiscard]] Expected<void> copy(const char *doing, const ArrayShape &shape, std::uint64_t offset,
                                      std::uint64_t size, CUDA_MEMCPY3D copy, bool out) const;

    const driver_api::Backend &driver_;
    CUarray array_;
};

} // namespace singularity::proxyd
