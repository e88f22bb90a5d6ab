// SPDX-License-Identifier: GPL-2.0-or-later
// cuMemcpy* of plain ranges. Where a pointer says nothing of its side, its address does.
#include "range_copy.hpp"

using namespace singularity::client;

namespace {

struct Ends {
    Location destination;
    Location source;
};

Location device_side(CUdeviceptr address) { return locate(address); }
Location host_side(const void *address) { return locate(address); }

// A device pointer that is nobody's: INVALID_VALUE, as the driver says.
bool is_device(const Location &location) { return location.where != Where::pageable; }

CUresult copy(CUstream stream, Wait wait, const Ends &ends, std::uint64_t size) {
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(stream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    if (size != 0 && (ends.destination.wire == 0 || ends.source.wire == 0))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_range(route, wire, ends.destination, ends.source, size, wait);
}

CUresult to_device(CUdeviceptr destination, const Location &source, std::uint64_t size, CUstream stream,
                   Wait wait) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const Ends ends{.destination = device_side(destination), .source = source};
    if (size != 0 && !is_device(ends.destination))
        return CUDA_ERROR_INVALID_VALUE;
    return copy(stream, wait, ends, size);
}

CUresult to_host(void *destination, CUdeviceptr source, std::uint64_t size, CUstream stream, Wait wait) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const Ends ends{.destination = host_side(destination), .source = device_side(source)};
    if (size != 0 && !is_device(ends.source))
        return CUDA_ERROR_INVALID_VALUE;
    return copy(stream, wait, ends, size);
}

CUresult device_to_device(CUdeviceptr destination, CUdeviceptr source, std::uint64_t size, CUstream stream,
                          Wait wait) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const auto from = device_side(source);
    if (size != 0 && !is_device(from))
        return CUDA_ERROR_INVALID_VALUE;
    return to_device(destination, from, size, stream, wait);
}

CUresult any(CUdeviceptr destination, CUdeviceptr source, std::uint64_t size, CUstream stream, Wait wait) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    return copy(stream, wait, {.destination = locate(destination), .source = locate(source)}, size);
}

} // namespace

extern "C" {

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    return any(dst, src, ByteCount, nullptr, Wait::yes);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    return any(dst, src, ByteCount, hStream, Wait::no);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    return to_device(dstDevice, host_side(srcHost), ByteCount, nullptr, Wait::yes);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                              CUstream hStream) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    return to_device(dstDevice, host_side(srcHost), ByteCount, hStream, Wait::no);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    return to_host(dstHost, srcDevice, ByteCount, nullptr, Wait::yes);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    return to_host(dstHost, srcDevice, ByteCount, hStream, Wait::no);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    return device_to_device(dstDevice, srcDevice, ByteCount, nullptr, Wait::yes);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
    return device_to_device(dstDevice, srcDevice, ByteCount, hStream, Wait::no);
}

// Addresses say which device they are of; the contexts add nothing.
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (context_of(dstContext) == nullptr || context_of(srcContext) == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    return device_to_device(dstDevice, srcDevice, ByteCount, nullptr, Wait::yes);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (context_of(dstContext) == nullptr || context_of(srcContext) == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    return device_to_device(dstDevice, srcDevice, ByteCount, hStream, Wait::no);
}

// Attributes are hints on ordering and location: a copy in stream order satisfies them all.
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
    if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 || attrs == nullptr ||
        attrsIdxs == nullptr || numAttrs == 0 || hStream == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t index = 0; index < count; ++index)
        if (const auto bad = cuMemcpyAsync(dsts[index], srcs[index], sizes[index], hStream);
            bad != CUDA_SUCCESS)
            return bad;
    return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
                            CUstream hStream) {
    const auto result = cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
    if (result != CUDA_SUCCESS && failIdx != nullptr)
        *failIdx = SIZE_MAX; // not of one copy
    return result;
}

} // extern "C"
