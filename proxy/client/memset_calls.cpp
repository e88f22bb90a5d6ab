// SPDX-License-Identifier: GPL-2.0-or-later
// cuMemset*: checked against what is allocated before they are sent, as the driver does.
#include "copy.hpp"

using namespace singularity;
using namespace singularity::client;

namespace {

// Rows of elements. INVALID_VALUE where they are not all inside one allocation, or not aligned to their size.
CUresult check(CUdeviceptr address, std::uint64_t pitch, std::uint64_t element, std::uint64_t width,
               std::uint64_t height, Location &location) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    location = locate(address);
    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    constexpr std::uint64_t kMost = std::uint64_t{1} << 46;
    if (location.where == Where::pageable || address % element != 0 || width > kMost / element ||
        (height > 1 && (pitch < width * element || pitch % element != 0 || pitch > kMost / height)))
        return CUDA_ERROR_INVALID_VALUE;
    return is_allocated(location, (height - 1) * (height > 1 ? pitch : 0) + width * element)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

template <class Request>
CUresult send(Request &&request, const Location &location, CUstream stream) {
    if (!request)
        return refused(request.error());
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(stream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    if constexpr (requires { request->hStream; })
        request->hStream = wire;
    request->dstDevice = location.wire;
    // Memory of another device than the current one's.
    if (location.session != nullptr && location.session != route.session) {
        if constexpr (requires { request->hStream; })
            return CUDA_ERROR_INVALID_VALUE;
        else if (const auto bad = route_to(*location.session, route, owner_of(location.wire));
                 bad != CUDA_SUCCESS)
            return bad;
    }
    const Encoded encoded([&](std::span<std::byte> storage) { return encode(*request, storage); });
    return submit(route, encoded.bytes());
}

} // namespace

// Everything but the name, the type and the size is the same.
#define MEMSET(symbol, id, type, element)                                                                    \
    CUresult symbol(CUdeviceptr dstDevice, type value, size_t N) {                                           \
        Location location;                                                                                   \
        if (const auto bad = check(dstDevice, 0, element, N, 1, location); bad != CUDA_SUCCESS || N == 0)    \
            return bad;                                                                                      \
        return send(driver_api::id##Call::request(ApiId::k##id, dstDevice, value, N), location, nullptr);    \
    }
#define MEMSET_ASYNC(symbol, id, type, element)                                                              \
    CUresult symbol(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream) {                         \
        Location location;                                                                                   \
        if (const auto bad = check(dstDevice, 0, element, N, 1, location); bad != CUDA_SUCCESS || N == 0)    \
            return bad;                                                                                      \
        return send(driver_api::id##Call::request(ApiId::k##id, dstDevice, value, N, hStream), location,     \
                    hStream);                                                                                \
    }
#define MEMSET_2D(symbol, id, type, element)                                                                 \
    CUresult symbol(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height) {       \
        Location location;                                                                                   \
        if (const auto bad = check(dstDevice, dstPitch, element, Width, Height, location);                   \
            bad != CUDA_SUCCESS || Width == 0 || Height == 0)                                                \
            return bad;                                                                                      \
        return send(driver_api::id##Call::request(ApiId::k##id, dstDevice, dstPitch, value, Width, Height),  \
                    location, nullptr);                                                                      \
    }
#define MEMSET_2D_ASYNC(symbol, id, type, element)                                                           \
    CUresult symbol(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height,         \
                    CUstream hStream) {                                                                      \
        Location location;                                                                                   \
        if (const auto bad = check(dstDevice, dstPitch, element, Width, Height, location);                   \
            bad != CUDA_SUCCESS || Width == 0 || Height == 0)                                                \
            return bad;                                                                                      \
        return send(                                                                                         \
            driver_api::id##Call::request(ApiId::k##id, dstDevice, dstPitch, value, Width, Height, hStream), \
            location, hStream);                                                                              \
    }

extern "C" {

MEMSET(cuMemsetD8_v2, MemsetD8V2, unsigned char, 1)
MEMSET(cuMemsetD16_v2, MemsetD16V2, unsigned short, 2)
MEMSET(cuMemsetD32_v2, MemsetD32V2, unsigned int, 4)
MEMSET_ASYNC(cuMemsetD8Async, MemsetD8Async, unsigned char, 1)
MEMSET_ASYNC(cuMemsetD16Async, MemsetD16Async, unsigned short, 2)
MEMSET_ASYNC(cuMemsetD32Async, MemsetD32Async, unsigned int, 4)
MEMSET_2D(cuMemsetD2D8_v2, MemsetD2D8V2, unsigned char, 1)
MEMSET_2D(cuMemsetD2D16_v2, MemsetD2D16V2, unsigned short, 2)
MEMSET_2D(cuMemsetD2D32_v2, MemsetD2D32V2, unsigned int, 4)
MEMSET_2D_ASYNC(cuMemsetD2D8Async, MemsetD2D8Async, unsigned char, 1)
MEMSET_2D_ASYNC(cuMemsetD2D16Async, MemsetD2D16Async, unsigned short, 2)
MEMSET_2D_ASYNC(cuMemsetD2D32Async, MemsetD2D32Async, unsigned int, 4)

} // extern "C"
