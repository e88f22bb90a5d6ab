// SPDX-License-Identifier: GPL-2.0-or-later
// Texture and surface objects.
#include "handlers.hpp"
#include "proxy/driver-api/wire.hpp"
#include "wanted_number.hpp"

#include <cstring>
#include <expected>
#include <optional>

namespace singularity::proxyd::handlers {

namespace {

using driver_api::Length;

std::expected<CUDA_RESOURCE_DESC, CUresult> describe(Call &call, const protocol::Resource &resource) {
    CUDA_RESOURCE_DESC out{};
    out.flags = resource.flags;
    const auto reaches = [&](Length size) {
        return size.valid() && call.session().reaches(resource.object, size.value());
    };
    // The client's number becomes an enumerator only where it is one.
    switch (resource.type) {
    case CU_RESOURCE_TYPE_ARRAY: {
        out.resType = CU_RESOURCE_TYPE_ARRAY;
        const auto array = call.object<CUarray>(driver_api::kHandleArray, resource.object);
        if (!array)
            return std::unexpected(CUDA_ERROR_INVALID_HANDLE);
        out.res.array.hArray = *array;
        return out;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
        out.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        const auto array = call.object<CUmipmappedArray>(driver_api::kHandleMipmap, resource.object);
        if (!array)
            return std::unexpected(CUDA_ERROR_INVALID_HANDLE);
        out.res.mipmap.hMipmappedArray = *array;
        return out;
    }
    case CU_RESOURCE_TYPE_LINEAR:
        if (!reaches(Length(resource.size)))
            return std::unexpected(CUDA_ERROR_INVALID_VALUE);
        out.resType = CU_RESOURCE_TYPE_LINEAR;
        out.res.linear.devPtr = resource.object;
        out.res.linear.format = static_cast<CUarray_format>(resource.format);
        out.res.linear.numChannels = resource.channels;
        out.res.linear.sizeInBytes = resource.size;
        return out;
    case CU_RESOURCE_TYPE_PITCH2D:
        // The last row need not be as long as the pitch; at least its begin must be there.
        if (resource.height == 0 ||
            !reaches(Length(resource.pitch) * Length(resource.height - 1) + Length(resource.width)))
            return std::unexpected(CUDA_ERROR_INVALID_VALUE);
        out.resType = CU_RESOURCE_TYPE_PITCH2D;
        out.res.pitch2D.devPtr = resource.object;
        out.res.pitch2D.format = static_cast<CUarray_format>(resource.format);
        out.res.pitch2D.numChannels = resource.channels;
        out.res.pitch2D.width = resource.width;
        out.res.pitch2D.height = resource.height;
        out.res.pitch2D.pitchInBytes = resource.pitch;
        return out;
    default:
        return std::unexpected(CUDA_ERROR_INVALID_VALUE);
    }
}

template <class T>
std::optional<T> read(const driver_api::View &view) {
    if (!view.present || view.bytes.size() != sizeof(T))
        return std::nullopt;
    return protocol::element<T>(view, 0);
}

} // namespace

CUresult handle(Call &call, const Request<protocol::CreateTexture> &request,
                Reply<protocol::CreateTexture> &reply) {
    if (call.driver().cuTexObjectCreate == nullptr || call.driver().cuTexObjectDestroy == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    const auto resource = describe(call, request.fixed.resource);
    if (!resource)
        return resource.error();
    const auto texture = read<CUDA_TEXTURE_DESC>(request.buffers[0]);
    const auto view = read<CUDA_RESOURCE_VIEW_DESC>(request.buffers[1]);
    if (!texture || (request.buffers[1].present && !view))
        return CUDA_ERROR_INVALID_VALUE;
    const auto &driver = call.driver();
    std::uint64_t object = 0;
    const auto result = make_numbered(
        "texture", object,
        [&](std::uint64_t &number) {
            CUtexObject made = 0;
            const auto done = driver.cuTexObjectCreate(&made, &*resource, &*texture, view ? &*view : nullptr);
            number = made;
            return done;
        },
        [&](std::uint64_t number) { return driver.cuTexObjectDestroy(number); });
    if (result != CUDA_SUCCESS)
        return result;
    call.add(driver_api::kHandleTexture, request.fixed.texture, object);
    reply.fixed.value = object;
    return result;
}

CUresult handle(Call &call, const Request<protocol::CreateSurface> &request,
                Reply<protocol::CreateSurface> &reply) {
    if (call.driver().cuSurfObjectCreate == nullptr || call.driver().cuSurfObjectDestroy == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    const auto resource = describe(call, request.fixed.resource);
    if (!resource)
        return resource.error();
    const auto &driver = call.driver();
    std::uint64_t object = 0;
    const auto result = make_numbered(
        "surface", object,
        [&](std::uint64_t &number) {
            CUsurfObject made = 0;
            const auto done = driver.cuSurfObjectCreate(&made, &*resource);
            number = made;
            return done;
        },
        [&](std::uint64_t number) { return driver.cuSurfObjectDestroy(number); });
    if (result != CUDA_SUCCESS)
        return result;
    call.add(driver_api::kHandleSurface, request.fixed.surface, object);
    reply.fixed.value = object;
    return result;
}

} // namespace singularity::proxyd::handlers
