// SPDX-License-Identifier: GPL-2.0-or-later
#include "array_copier.hpp"

#include "back_end.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

constexpr std::array<std::pair<CUarray_format, unsigned>, 8> kFormatBytes{{{CU_AD_FORMAT_UNSIGNED_INT8, 1},
                                                                           {CU_AD_FORMAT_UNSIGNED_INT16, 2},
                                                                           {CU_AD_FORMAT_UNSIGNED_INT32, 4},
                                                                           {CU_AD_FORMAT_SIGNED_INT8, 1},
                                                                           {CU_AD_FORMAT_SIGNED_INT16, 2},
                                                                           {CU_AD_FORMAT_SIGNED_INT32, 4},
                                                                           {CU_AD_FORMAT_HALF, 2},
                                                                           {CU_AD_FORMAT_FLOAT, 4}}};
constexpr unsigned kWithoutMemory = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

} // namespace

Expected<ArrayShape> ArrayCopier::shape() const {
    CUDA_ARRAY3D_DESCRIPTOR description{};
    const auto result = driver_.cuArray3DGetDescriptor_v2 == nullptr
                            ? CUDA_ERROR_NOT_SUPPORTED
                            : driver_.cuArray3DGetDescriptor_v2(&description, array_);
    if (result != CUDA_SUCCESS)
        return failure("save", "an array", result_name(driver_, result), EIO);
    const auto *const format =
        std::ranges::find(kFormatBytes, description.Format, &decltype(kFormatBytes)::value_type::first);
    if (format == kFormatBytes.end())
        return failure(
            "save", "an array",
            fmt::format("its texels have the format {:#x}", static_cast<unsigned>(description.Format)),
            ENOTSUP);
    if ((description.Flags & kWithoutMemory) != 0)
        return failure("save", "an array", "the program maps its memory by itself", ENOTSUP);
    return ArrayShape{.row = std::uint64_t{description.Width} * description.NumChannels * format->second,
                      .rows = std::max<std::uint64_t>(description.Height, 1),
                      .slices = std::max<std::uint64_t>(description.Depth, 1)};
}

std::uint64_t ArrayCopier::piece_at(const ArrayShape &shape, std::uint64_t offset, std::uint64_t most) {
    const auto in_slice = offset % shape.slice();
    if (const auto in_row = in_slice % shape.row; in_row != 0 || shape.row > most)
        return std::min(shape.row - in_row, most);
    return std::min(most / shape.row, shape.rows - in_slice / shape.row) * shape.row;
}

Expected<void> ArrayCopier::copy(const char *doing, const ArrayShape &shape, std::uint64_t offset,
                                 std::uint64_t size, CUDA_MEMCPY3D copy, bool out) const {
    const auto wrong = [&](std::string why) {
        return failure(doing, fmt::format("{} bytes of an array at {}", size, offset), std::move(why),
                       EPROTO);
    };
    if (size == 0 || offset >= shape.size() || size > piece_at(shape, offset, size))
        return wrong("they are no box of texels");
    const auto x = offset % shape.row;
    const auto y = offset % shape.slice() / shape.row;
    const auto z = offset / shape.slice();
    (out ? copy.srcXInBytes : copy.dstXInBytes) = x;
    (out ? copy.srcY : copy.dstY) = y;
    (out ? copy.srcZ : copy.dstZ) = z;
    (out ? copy.srcMemoryType : copy.dstMemoryType) = CU_MEMORYTYPE_ARRAY;
    (out ? copy.dstMemoryType : copy.srcMemoryType) = CU_MEMORYTYPE_HOST;
    (out ? copy.srcArray : copy.dstArray) = array_;
    copy.WidthInBytes = std::min(size, shape.row);
    copy.Height = std::max<std::uint64_t>(size / shape.row, 1);
    copy.Depth = 1;
    (out ? copy.dstPitch : copy.srcPitch) = copy.WidthInBytes;
    (out ? copy.dstHeight : copy.srcHeight) = copy.Height;
    auto result = driver_.cuMemcpy3DAsync_v2 == nullptr || driver_.cuStreamSynchronize == nullptr
                      ? CUDA_ERROR_NOT_SUPPORTED
                      : driver_.cuMemcpy3DAsync_v2(&copy, nullptr);
    if (result == CUDA_SUCCESS)
        result = driver_.cuStreamSynchronize(nullptr);
    if (result != CUDA_SUCCESS)
        return wrong(result_name(driver_, result));
    return {};
}

Expected<void> ArrayCopier::read(const ArrayShape &shape, std::uint64_t offset,
                                 std::span<std::byte> bytes) const {
    CUDA_MEMCPY3D box{};
    box.dstHost = bytes.data();
    return copy("read", shape, offset, bytes.size(), box, true);
}

Expected<void> ArrayCopier::write(const ArrayShape &shape, std::uint64_t offset,
                                  std::span<const std::byte> bytes) const {
    CUDA_MEMCPY3D box{};
    box.srcHost = bytes.data();
    return copy("write", shape, offset, bytes.size(), box, false);
}

} // namespace singularity::proxyd
