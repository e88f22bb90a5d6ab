// SPDX-License-Identifier: GPL-2.0-or-later
// What a program hands over as code: the wrapper that nvcc puts into executables, a fatbin, an ELF file, or
// PTX text, by nothing but its address.
#pragma once

#include "common/error.hpp"
#include "driver/result.hpp"
#include "ptx/ir.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace singularity::softgpu::driver {

// Why an image was refused: for the program, and for people.
struct ImageError {
    CUresult result = CUDA_ERROR_INVALID_IMAGE;
    std::string text;
};

// Code that is ready to be parsed, which happens when somebody first needs it.
class Image {
  public:
    // `preserved`: the program keeps the bytes as long as the image lives; else they are copied.
    // size 0: found out from the bytes.
    [[nodiscard]] static std::expected<std::shared_ptr<Image>, ImageError>
    open(const void *data, std::size_t size, std::uint32_t sm, bool preserved);

    // PTX text is checked when it is loaded, as NVIDIA's driver does; code in fatbins when it is first used.
    [[nodiscard]] bool is_text() const { return is_text_; }
    // All parts linked.
    [[nodiscard]] std::expected<std::shared_ptr<const ptx::Module>, ImageError> module();

  private:
    struct Part {
        std::vector<std::byte> copied;
        std::span<const std::byte> stored; // of `copied` or of the program
        std::uint8_t compression = 0;
        std::uint64_t size = 0;
    };
    [[nodiscard]] std::expected<void, ImageError> add(std::span<const std::byte> bytes, std::uint32_t sm,
                                                      bool preserved);

    bool is_text_ = false;
    std::vector<Part> parts_;
    std::mutex mutex_;
    std::shared_ptr<const ptx::Module> module_;
};

// An image of several PTX texts, which opens as one module linked of them.
[[nodiscard]] std::vector<std::byte> linked_image(const std::vector<std::string> &texts);

// One module of several: every name that is declared in one and defined in another means that definition.
// (link.cpp)
[[nodiscard]] Expected<ptx::Module> link(std::vector<ptx::Module> modules);

} // namespace singularity::softgpu::driver
