// SPDX-License-Identifier: GPL-2.0-or-later
#include "places.hpp"

#include "proxy/driver-api/wire.hpp"

#include <bit>
#include <optional>
#include <utility>

namespace singularity::proxyd::handlers {

namespace {

using driver_api::Length;
using protocol::Box;
using protocol::Place;
using protocol::PlaceKind;

// One side of CUDA_MEMCPY3D, whichever side it will be.
struct Side {
    CUmemorytype type{};
    void *host = nullptr;
    CUdeviceptr device = 0;
    CUarray array = nullptr;
    std::size_t x = 0, y = 0, z = 0, level = 0, pitch = 0, height = 0;
};

// First byte and length of what a box touches in linear memory; nothing where that does not exist.
std::optional<std::pair<std::uint64_t, std::uint64_t>> touched(const Place &place, const Box &box) {
    if (box.width == 0 || box.height == 0 || box.depth == 0)
        return std::pair(place.base, std::uint64_t{0});
    const auto rows = Length(place.height != 0 ? place.height : box.height);
    const auto slice = Length(place.pitch) * rows;
    const auto first = Length(place.base) + slice * Length(place.z) + Length(place.pitch) * Length(place.y) +
                       Length(place.x);
    const auto length =
        slice * Length(box.depth - 1) + Length(place.pitch) * Length(box.height - 1) + Length(box.width);
    if (!first.valid() || !length.valid() || !(first + length).valid())
        return std::nullopt;
    return std::pair(first.value(), length.value());
}

std::expected<Side, CUresult> side(Call &call, const Place &place, const Box &box, void *data) {
    Side out{.x = place.x,
             .y = place.y,
             .z = place.z,
             .level = place.level,
             .pitch = place.pitch,
             .height = place.height};
    switch (static_cast<PlaceKind>(place.kind)) {
    case PlaceKind::data:
        if (data == nullptr)
            return std::unexpected(CUDA_ERROR_INVALID_VALUE);
        return Side{.type = CU_MEMORYTYPE_HOST, .host = data, .pitch = box.width, .height = box.height};
    case PlaceKind::device:
    case PlaceKind::shared_host: {
        const auto range = touched(place, box);
        if (!range)
            return std::unexpected(CUDA_ERROR_INVALID_VALUE);
        if (static_cast<PlaceKind>(place.kind) == PlaceKind::device) {
            if (range->second != 0 && !call.session().reaches(range->first, range->second))
                return std::unexpected(CUDA_ERROR_INVALID_VALUE);
            out.type = CU_MEMORYTYPE_DEVICE;
            out.device = place.base;
            return out;
        }
        if (call.session().addresses().host(range->first, range->second) == nullptr)
            return std::unexpected(CUDA_ERROR_INVALID_VALUE);
        out.type = CU_MEMORYTYPE_HOST;
        out.host = std::bit_cast<void *>(place.base);
        return out;
    }
    case PlaceKind::array: {
        const auto array = call.object<CUarray>(driver_api::kHandleArray, place.base);
        if (!array || *array == nullptr)
            return std::unexpected(CUDA_ERROR_INVALID_HANDLE);
        out.type = CU_MEMORYTYPE_ARRAY;
        out.array = *array;
        return out;
    }
    case PlaceKind::end:
        break;
    }
    return std::unexpected(CUDA_ERROR_INVALID_VALUE);
}

} // namespace

std::expected<CUDA_MEMCPY3D, CUresult> box_copy(Call &call, const Place &destination, const Place &source,
                                                const Box &box, void *data) {
    const auto from = side(call, source, box, data);
    if (!from)
        return std::unexpected(from.error());
    const auto to = side(call, destination, box, data);
    if (!to)
        return std::unexpected(to.error());
    CUDA_MEMCPY3D copy{};
    copy.srcXInBytes = from->x;
    copy.srcY = from->y;
    copy.srcZ = from->z;
    copy.srcLOD = from->level;
    copy.srcMemoryType = from->type;
    copy.srcHost = from->host;
    copy.srcDevice = from->device;
    copy.srcArray = from->array;
    copy.srcPitch = from->pitch;
    copy.srcHeight = from->height;
    copy.dstXInBytes = to->x;
    copy.dstY = to->y;
    copy.dstZ = to->z;
    copy.dstLOD = to->level;
    copy.dstMemoryType = to->type;
    copy.dstHost = to->host;
    copy.dstDevice = to->device;
    copy.dstArray = to->array;
    copy.dstPitch = to->pitch;
    copy.dstHeight = to->height;
    copy.WidthInBytes = box.width;
    copy.Height = box.height;
    copy.Depth = box.depth;
    return copy;
}

CUresult copy_box(const driver_api::Backend &driver, const CUDA_MEMCPY3D &copy, CUstream stream) {
    const bool flat =
        copy.Depth == 1 && copy.srcZ == 0 && copy.dstZ == 0 && copy.srcLOD == 0 && copy.dstLOD == 0;
    if (!flat || driver.cuMemcpy2DAsync_v2 == nullptr)
        return driver.cuMemcpy3DAsync_v2 == nullptr ? CUDA_ERROR_NOT_SUPPORTED
                                                    : driver.cuMemcpy3DAsync_v2(&copy, stream);
    CUDA_MEMCPY2D plane{};
    plane.srcXInBytes = copy.srcXInBytes;
    plane.srcY = copy.srcY;
    plane.srcMemoryType = copy.srcMemoryType;
    plane.srcHost = copy.srcHost;
    plane.srcDevice = copy.srcDevice;
    plane.srcArray = copy.srcArray;
    plane.srcPitch = copy.srcPitch;
    plane.dstXInBytes = copy.dstXInBytes;
    plane.dstY = copy.dstY;
    plane.dstMemoryType = copy.dstMemoryType;
    plane.dstHost = copy.dstHost;
    plane.dstDevice = copy.dstDevice;
    plane.dstArray = copy.dstArray;
    plane.dstPitch = copy.dstPitch;
    plane.WidthInBytes = copy.WidthInBytes;
    plane.Height = copy.Height;
    return driver.cuMemcpy2DAsync_v2(&plane, stream);
}

namespace {

// Linear memory of a node: shared host memory or the device's, by where it lies.
Place place_of(Call &call, const Side &side) {
    Place place{.level = static_cast<std::uint32_t>(side.level),
                .x = side.x,
                .y = side.y,
                .z = side.z,
                .pitch = side.pitch,
                .height = side.height};
    if (side.type == CU_MEMORYTYPE_ARRAY) {
        place.kind = std::to_underlying(PlaceKind::array);
        place.base =
            call.objects().name_of(driver_api::kHandleArray, std::bit_cast<std::uint64_t>(side.array));
        return place;
    }
    place.base = side.type == CU_MEMORYTYPE_HOST ? std::bit_cast<std::uint64_t>(side.host) : side.device;
    place.kind =
        std::to_underlying(call.session().addresses().host(place.base, 1) != nullptr ? PlaceKind::shared_host
                                                                                     : PlaceKind::device);
    return place;
}

} // namespace

Place source_place(Call &call, const CUDA_MEMCPY3D &copy) {
    return place_of(call, {.type = copy.srcMemoryType,
                           .host = const_cast<void *>(copy.srcHost),
                           .device = copy.srcDevice,
                           .array = copy.srcArray,
                           .x = copy.srcXInBytes,
                           .y = copy.srcY,
                           .z = copy.srcZ,
                           .level = copy.srcLOD,
                           .pitch = copy.srcPitch,
                           .height = copy.srcHeight});
}

Place destination_place(Call &call, const CUDA_MEMCPY3D &copy) {
    return place_of(call, {.type = copy.dstMemoryType,
                           .host = copy.dstHost,
                           .device = copy.dstDevice,
                           .array = copy.dstArray,
                           .x = copy.dstXInBytes,
                           .y = copy.dstY,
                           .z = copy.dstZ,
                           .level = copy.dstLOD,
                           .pitch = copy.dstPitch,
                           .height = copy.dstHeight});
}

} // namespace singularity::proxyd::handlers
