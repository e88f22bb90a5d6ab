// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/array.hpp"

#include "driver/context.hpp"
#include "driver/log.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

struct FormatRow {
    CUarray_format format;
    TexelKind kind;
    std::uint8_t bytes;
};
constexpr std::array<FormatRow, 8> kFormats{{
    {CU_AD_FORMAT_UNSIGNED_INT8, TexelKind::unsigned_integer, 1},
    {CU_AD_FORMAT_UNSIGNED_INT16, TexelKind::unsigned_integer, 2},
    {CU_AD_FORMAT_UNSIGNED_INT32, TexelKind::unsigned_integer, 4},
    {CU_AD_FORMAT_SIGNED_INT8, TexelKind::signed_integer, 1},
    {CU_AD_FORMAT_SIGNED_INT16, TexelKind::signed_integer, 2},
    {CU_AD_FORMAT_SIGNED_INT32, TexelKind::signed_integer, 4},
    {CU_AD_FORMAT_HALF, TexelKind::floating, 2},
    {CU_AD_FORMAT_FLOAT, TexelKind::floating, 4},
}};

// The largest of any kind; what a device says about each kind is in device.cpp.
constexpr std::uint64_t kWidest = 131072;
constexpr std::uint64_t kHighest = 65536;
constexpr std::uint64_t kDeepest = 16384;
constexpr std::uint64_t kAlignment = 512; // of an array's memory, and the unit in which it is counted

constexpr unsigned kKnownFlags =
    CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;

struct Shape {
    std::uint64_t width;
    std::uint64_t height;
    std::uint64_t depth;
};

CUresult check(const CUDA_ARRAY3D_DESCRIPTOR &description) {
    if ((description.Flags & ~kKnownFlags) != 0) {
        kLog.error("CUDA arrays with flags {:#x} are not supported", description.Flags & ~kKnownFlags);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const Shape shape{description.Width, description.Height, description.Depth};
    const bool layered = (description.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    const bool cube = (description.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
    if (shape.width == 0 || shape.width > kWidest || shape.height > kHighest || shape.depth > kDeepest)
        return CUDA_ERROR_INVALID_VALUE;
    if (cube && (shape.width != shape.height || shape.depth == 0 || shape.depth % 6 != 0 ||
                 (!layered && shape.depth != 6)))
        return CUDA_ERROR_INVALID_VALUE;
    if (layered && shape.depth == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!layered && !cube && shape.height == 0 && shape.depth != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

std::shared_ptr<std::byte> texels_of(Account &account, std::uint64_t size) {
    const std::uint64_t room = round_up(size, kAlignment);
    if (!account.take(room))
        return nullptr;
    auto *const memory = static_cast<std::byte *>(std::calloc(room, 1)); // fresh pages where it is large
    if (memory == nullptr) {
        account.give_back(room);
        return nullptr;
    }
    return {memory, [&account, room](std::byte *texels) {
                std::free(texels); // NOLINT(cppcoreguidelines-no-malloc): of calloc
                account.give_back(room);
            }};
}

} // namespace

Result<TexelForm> texel_form(CUarray_format format, unsigned channels) {
    if (channels != 1 && channels != 2 && channels != 4)
        return refused(CUDA_ERROR_INVALID_VALUE);
    const auto *const row = std::ranges::find(kFormats, format, &FormatRow::format);
    if (row == kFormats.end()) {
        kLog.error("the array format {:#x} is not supported", static_cast<unsigned>(format));
        return refused(CUDA_ERROR_NOT_SUPPORTED);
    }
    return TexelForm{row->kind, row->bytes, static_cast<std::uint8_t>(channels)};
}

Result<std::shared_ptr<Array>> Array::make(Context &context, const CUDA_ARRAY3D_DESCRIPTOR &description,
                                           CUmipmappedArray of) {
    const auto form = texel_form(description.Format, description.NumChannels);
    if (!form)
        return refused(form);
    if (const CUresult checked = check(description); checked != CUDA_SUCCESS)
        return refused(checked);
    auto array = std::shared_ptr<Array>(new Array(description, context.id(), of));
    TexelImage &image = array->image_;
    image.form = *form;
    image.width = static_cast<std::uint32_t>(description.Width);
    image.height = static_cast<std::uint32_t>(std::max<std::size_t>(description.Height, 1));
    image.depth = static_cast<std::uint32_t>(std::max<std::size_t>(description.Depth, 1));
    image.row = std::uint64_t{image.width} * form->size();
    image.slice = image.row * image.height;
    image.cube = (description.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
    image.layered = (description.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    image.dimensions = description.Height == 0                                 ? 1
                       : image.cube || image.layered || description.Depth == 0 ? 2
                                                                               : 3;
    array->texels_ = texels_of(context.device().memory(), image.slice * image.depth);
    if (array->texels_ == nullptr)
        return refused(CUDA_ERROR_OUT_OF_MEMORY);
    image.texels = array->texels_.get();
    array->handle = arrays().add(array);
    return array;
}

bool Array::belongs_to(const Context &context) const { return context_ == context.id(); }
bool MipmappedArray::belongs_to(const Context &owner) const { return context == owner.id(); }

Handles<Array, CUarray, HandleKind::array> &arrays() {
    static auto &table = *new Handles<Array, CUarray, HandleKind::array>; // outlives every thread
    return table;
}

Handles<MipmappedArray, CUmipmappedArray, HandleKind::mipmapped_array> &mipmapped_arrays() {
    static auto &table = *new Handles<MipmappedArray, CUmipmappedArray, HandleKind::mipmapped_array>;
    return table;
}

Result<CUmipmappedArray> make_mipmapped(Context &context, const CUDA_ARRAY3D_DESCRIPTOR &description,
                                        unsigned levels) {
    if (const CUresult checked = check(description); checked != CUDA_SUCCESS)
        return refused(checked);
    auto made = std::make_shared<MipmappedArray>();
    made->context = context.id();
    made->description = description;
    made->handle = mipmapped_arrays().reserve();
    const bool flat = (description.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    const std::size_t largest =
        std::max({description.Width, description.Height, flat ? 0 : description.Depth});
    const auto count = std::clamp<unsigned>(levels, 1, static_cast<unsigned>(std::bit_width(largest)));
    const auto halved = [](std::size_t size, unsigned times) {
        return size == 0 ? 0 : std::max<std::size_t>(size >> times, 1);
    };
    for (unsigned level = 0; level < count; ++level) {
        CUDA_ARRAY3D_DESCRIPTOR one = description;
        one.Width = halved(one.Width, level);
        one.Height = halved(one.Height, level);
        if (!flat)
            one.Depth = halved(one.Depth, level);
        auto array = Array::make(context, one, made->handle);
        if (!array) {
            for (const auto &before : made->levels)
                arrays().take(before->handle);
            return refused(array);
        }
        made->levels.push_back(*std::move(array));
    }
    mipmapped_arrays().put(made->handle, made);
    return made->handle;
}

void end_mipmapped(CUmipmappedArray handle) {
    if (const auto ended = mipmapped_arrays().take(handle))
        for (const auto &level : ended->levels)
            arrays().take(level->handle);
}

} // namespace singularity::softgpu::driver
