// SPDX-License-Identifier: GPL-2.0-or-later
// A module image says its own length, and the driver believes it: it must not say more than what is there.
// An image of several fatbins is given to the driver as programs give it: a wrapper that names them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::proxyd::handlers {

// Whether a fatbin, all of several, or an ELF file lies wholly inside these bytes. What is neither is text,
// and ends at its NUL.
[[nodiscard]] bool is_whole(std::span<const std::byte> image);

// What a driver takes the image as. The image must be whole, and stay where it is as long as this is used.
class DriverImage {
  public:
    explicit DriverImage(std::span<const std::byte> image);
    DriverImage(const DriverImage &) = delete;
    DriverImage &operator=(const DriverImage &) = delete;
    DriverImage(DriverImage &&) = delete;
    DriverImage &operator=(DriverImage &&) = delete;
    ~DriverImage() = default;

    [[nodiscard]] const void *data() const { return data_; }

  private:
    // __fatBinC_Wrapper_t of the CUDA toolkit's fatbinary_section.h
    struct Wrapper {
        std::uint32_t magic = 0x466243B1;
        std::uint32_t version = 2;
        const void *fatbin = nullptr;
        const void *const *others = nullptr; // ended by a null pointer
    };
    std::vector<const void *> others_;
    Wrapper wrapper_;
    const void *data_;
};

} // namespace singularity::proxyd::handlers
