// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/texture.hpp"

#include "driver/array.hpp"
#include "driver/copy.hpp"
#include "driver/log.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

constexpr std::uint64_t kMemoryAlignment = 512; // as CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT says
constexpr std::uint64_t kPitchUnit = 32;        // as CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT says
constexpr std::uint64_t kMostTexels = std::uint64_t{1} << 28U;
constexpr std::uint64_t kMostColumns = 131072;
constexpr std::uint64_t kMostRows = 65000;
constexpr unsigned kKnownFlags =
    CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;

struct AddressRow {
    CUaddress_mode mode;
    Addressing how;
};
constexpr std::array<AddressRow, 4> kAddressing{{{CU_TR_ADDRESS_MODE_WRAP, Addressing::wrap},
                                                 {CU_TR_ADDRESS_MODE_CLAMP, Addressing::clamp},
                                                 {CU_TR_ADDRESS_MODE_MIRROR, Addressing::mirror},
                                                 {CU_TR_ADDRESS_MODE_BORDER, Addressing::border}}};

Result<Texture> of_linear(const CUDA_RESOURCE_DESC &resource) {
    const auto &linear = resource.res.linear;
    const auto form = texel_form(linear.format, linear.numChannels);
    if (!form)
        return refused(form);
    Holds held;
    const std::uint64_t count = linear.sizeInBytes / form->size();
    if (linear.devPtr % kMemoryAlignment != 0 || count == 0 || count > kMostTexels ||
        !hold(linear.devPtr, linear.sizeInBytes, held))
        return refused(CUDA_ERROR_INVALID_VALUE);
    Texture out;
    out.source = TexelSource::linear;
    TexelImage image;
    image.form = *form;
    image.width = static_cast<std::uint32_t>(count);
    image.row = image.slice = linear.sizeInBytes;
    image.texels = std::bit_cast<std::byte *>(linear.devPtr);
    out.levels.push_back(image);
    return out;
}

Result<Texture> of_pitched(const CUDA_RESOURCE_DESC &resource) {
    const auto &plane = resource.res.pitch2D;
    const auto form = texel_form(plane.format, plane.numChannels);
    if (!form)
        return refused(form);
    Holds held;
    if (plane.devPtr % kMemoryAlignment != 0 || plane.pitchInBytes % kPitchUnit != 0 || plane.width == 0 ||
        plane.width > kMostColumns || plane.height == 0 || plane.height > kMostRows ||
        plane.pitchInBytes < plane.width * form->size() || plane.pitchInBytes > kMostTexels ||
        !hold(plane.devPtr, (plane.height - 1) * plane.pitchInBytes + plane.width * form->size(), held))
        return refused(CUDA_ERROR_INVALID_VALUE);
    Texture out;
    out.source = TexelSource::pitched;
    TexelImage image;
    image.form = *form;
    image.dimensions = 2;
    image.width = static_cast<std::uint32_t>(plane.width);
    image.height = static_cast<std::uint32_t>(plane.height);
    image.row = plane.pitchInBytes;
    image.slice = image.row * image.height;
    image.texels = std::bit_cast<std::byte *>(plane.devPtr);
    out.levels.push_back(image);
    return out;
}

Result<Texture> image_of(const CUDA_RESOURCE_DESC &resource) {
    if (resource.flags != 0)
        return refused(CUDA_ERROR_INVALID_VALUE);
    Texture out;
    switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
        const auto array = arrays().get(resource.res.array.hArray);
        if (!array)
            return refused(array);
        out.levels.push_back((*array)->image());
        out.holds = *array;
        return out;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
        const auto all = mipmapped_arrays().get(resource.res.mipmap.hMipmappedArray);
        if (!all)
            return refused(all);
        for (const auto &level : (*all)->levels)
            out.levels.push_back(level->image());
        out.holds = *all;
        return out;
    }
    case CU_RESOURCE_TYPE_LINEAR:
        return of_linear(resource);
    case CU_RESOURCE_TYPE_PITCH2D:
        return of_pitched(resource);
    }
    return refused(CUDA_ERROR_INVALID_VALUE);
}

// A view may show all that there is, as it is.
bool shows_all(const CUDA_RESOURCE_VIEW_DESC &view, const Texture &texture) {
    const TexelImage &image = texture.levels.front();
    const std::uint64_t layers = image.layered || image.cube ? image.depth : 0;
    return view.format == CU_RES_VIEW_FORMAT_NONE && view.width == image.width &&
           std::max<std::size_t>(view.height, 1) == image.height && view.firstMipmapLevel == 0 &&
           (view.lastMipmapLevel == 0 || view.lastMipmapLevel + 1 == texture.levels.size()) &&
           view.firstLayer == 0 && (view.lastLayer == 0 || view.lastLayer + 1 == layers);
}

Result<Sampler> sampler_of(const CUDA_TEXTURE_DESC &texture, const Texture &image) {
    const auto unsupported = [](std::string_view what) {
        kLog.error("textures {} are not supported", what);
        return refused(CUDA_ERROR_NOT_SUPPORTED);
    };
    if ((texture.flags & ~kKnownFlags) != 0)
        return unsupported("in sRGB, or of cubemaps without seams,");
    Sampler out;
    for (unsigned d = 0; d < out.addressing.size(); ++d) {
        const auto *const row = std::ranges::find(kAddressing, texture.addressMode[d], &AddressRow::mode);
        if (row == kAddressing.end())
            return refused(CUDA_ERROR_INVALID_VALUE);
        out.addressing[d] = row->how;
    }
    const auto is_filter = [](CUfilter_mode mode) {
        return mode == CU_TR_FILTER_MODE_POINT || mode == CU_TR_FILTER_MODE_LINEAR;
    };
    if (!is_filter(texture.filterMode) || !is_filter(texture.mipmapFilterMode))
        return refused(CUDA_ERROR_INVALID_VALUE);
    out.linear = texture.filterMode == CU_TR_FILTER_MODE_LINEAR;
    out.between_levels = texture.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
    out.normalized = (texture.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
    out.integers = (texture.flags & CU_TRSF_READ_AS_INTEGER) != 0;
    std::ranges::copy(texture.borderColor, out.border.begin());
    out.level_bias = texture.mipmapLevelBias;
    out.lowest_level = texture.minMipmapLevelClamp;
    out.highest_level = texture.maxMipmapLevelClamp;
    const TexelForm &form = image.levels.front().form;
    const bool gives_integers = form.kind != TexelKind::floating && (out.integers || form.bytes == 4);
    if (gives_integers && out.linear && image.source != TexelSource::linear)
        return refused(CUDA_ERROR_INVALID_VALUE); // there is nothing between integers
    if (gives_integers && std::ranges::any_of(out.border, [](float value) { return value != 0; }))
        return unsupported("of integers with a border that is not 0");
    if (image.levels.size() > 1 && texture.maxAnisotropy > 1)
        return unsupported("of mipmapped arrays with anisotropy");
    return out;
}

} // namespace

Result<TextureObject> make_texture(const CUDA_RESOURCE_DESC &resource, const CUDA_TEXTURE_DESC &texture,
                                   const CUDA_RESOURCE_VIEW_DESC *view) {
    auto image = image_of(resource);
    if (!image)
        return refused(image);
    if (view != nullptr && !shows_all(*view, *image)) {
        kLog.error("views that show a part of a texture, or other texels than it has, are not supported");
        return refused(CUDA_ERROR_NOT_SUPPORTED);
    }
    const auto sampler = sampler_of(texture, *image);
    if (!sampler)
        return refused(sampler);
    image->sampler = *sampler;
    return TextureObject{resource, texture, view == nullptr ? std::nullopt : std::optional(*view),
                         std::make_shared<const Texture>(*std::move(image))};
}

Result<SurfaceObject> make_surface(const CUDA_RESOURCE_DESC &resource) {
    if (resource.resType != CU_RESOURCE_TYPE_ARRAY || resource.flags != 0)
        return refused(CUDA_ERROR_INVALID_VALUE);
    const auto array = arrays().get(resource.res.array.hArray);
    if (!array)
        return refused(array);
    if (((*array)->description().Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0)
        return refused(CUDA_ERROR_INVALID_VALUE);
    return SurfaceObject{resource, std::make_shared<const Surface>(Surface{(*array)->image(), *array})};
}

} // namespace singularity::softgpu::driver
