// SPDX-License-Identifier: GPL-2.0-or-later
// What a texture or surface object shows, from what a program says.
#pragma once

#include "driver/result.hpp"
#include "driver/texture_table.hpp"

namespace singularity::softgpu::driver {

[[nodiscard]] Result<TextureObject> make_texture(const CUDA_RESOURCE_DESC &resource,
                                                 const CUDA_TEXTURE_DESC &texture,
                                                 const CUDA_RESOURCE_VIEW_DESC *view);
[[nodiscard]] Result<SurfaceObject> make_surface(const CUDA_RESOURCE_DESC &resource);

} // namespace singularity::softgpu::driver
