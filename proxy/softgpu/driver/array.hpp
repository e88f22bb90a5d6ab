// SPDX-License-Identifier: GPL-2.0-or-later
// CUDA arrays and mipmapped arrays: texels that have no address. They lie row behind row, slice behind slice,
// without gaps; programs reach them by copies, textures and surfaces only.
#pragma once

#include "driver/handles.hpp"
#include "driver/result.hpp"
#include "engine/texture.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace singularity::softgpu::driver {

class Context;

// What one texel is. Nothing: no format that there can be arrays or textures of.
[[nodiscard]] Result<TexelForm> texel_form(CUarray_format format, unsigned channels);

class Array {
  public:
    // of: the mipmapped array whose level it is; it ends with that.
    [[nodiscard]] static Result<std::shared_ptr<Array>>
    make(Context &context, const CUDA_ARRAY3D_DESCRIPTOR &description, CUmipmappedArray of = nullptr);

    CUarray handle = nullptr;

    [[nodiscard]] bool belongs_to(const Context &context) const;
    [[nodiscard]] const CUDA_ARRAY3D_DESCRIPTOR &description() const { return description_; }
    [[nodiscard]] const TexelImage &image() const { return image_; }
    [[nodiscard]] CUmipmappedArray of() const { return of_; }

  private:
    Array(const CUDA_ARRAY3D_DESCRIPTOR &description, std::uint64_t context, CUmipmappedArray of)
        : description_(description), context_(context), of_(of) {}

    CUDA_ARRAY3D_DESCRIPTOR description_;
    std::uint64_t context_;
    CUmipmappedArray of_;
    std::shared_ptr<std::byte> texels_; // given back to the device's account at its end
    TexelImage image_;
};

struct MipmappedArray {
    CUmipmappedArray handle = nullptr;
    std::uint64_t context = 0;
    CUDA_ARRAY3D_DESCRIPTOR description{};
    std::vector<std::shared_ptr<Array>> levels;

    [[nodiscard]] bool belongs_to(const Context &owner) const;
};

[[nodiscard]] Handles<Array, CUarray, HandleKind::array> &arrays();
[[nodiscard]] Handles<MipmappedArray, CUmipmappedArray, HandleKind::mipmapped_array> &mipmapped_arrays();

[[nodiscard]] Result<CUmipmappedArray>
make_mipmapped(Context &context, const CUDA_ARRAY3D_DESCRIPTOR &description, unsigned levels);
void end_mipmapped(CUmipmappedArray handle);

} // namespace singularity::softgpu::driver
