// SPDX-License-Identifier: GPL-2.0-or-later
// cuMemcpy2D and 3D, copies from and to arrays.
#include "box_copy.hpp"

using namespace singularity;
using namespace singularity::client;

namespace {

CUresult copy(CUstream stream, const BoxCopy &box, Wait wait) {
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(stream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    return copy_box(route, wire, box, wait);
}

template <class Copy>
CUresult copy(CUstream stream, const Copy *box, Wait wait) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    return box == nullptr ? CUDA_ERROR_INVALID_VALUE : copy(stream, box_of(*box), wait);
}

BoxEnd array_end(CUarray array, std::size_t offset) {
    return {.type = CU_MEMORYTYPE_ARRAY, .address = std::bit_cast<std::uint64_t>(array), .x = offset};
}
BoxEnd host_end(const void *memory) {
    return {.type = CU_MEMORYTYPE_HOST, .address = std::bit_cast<std::uint64_t>(memory)};
}
BoxEnd device_end(CUdeviceptr memory) { return {.type = CU_MEMORYTYPE_DEVICE, .address = memory}; }

CUresult line(CUstream stream, const BoxEnd &destination, const BoxEnd &source, std::size_t bytes,
              Wait wait) {
    return copy(stream, BoxCopy{.destination = destination, .source = source, .box = {.width = bytes}}, wait);
}

BoxEnd operand(const CUmemcpy3DOperand &operand) {
    if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        return {.type = CU_MEMORYTYPE_ARRAY,
                .address = std::bit_cast<std::uint64_t>(operand.op.array.array),
                .x = operand.op.array.offset.x,
                .y = operand.op.array.offset.y,
                .z = operand.op.array.offset.z};
    return {.type = CU_MEMORYTYPE_UNIFIED,
            .address = operand.op.ptr.ptr,
            .pitch = operand.op.ptr.rowLength,
            .height = operand.op.ptr.layerHeight};
}

} // namespace

extern "C" {

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy) { return copy(nullptr, pCopy, Wait::yes); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy) { return copy(nullptr, pCopy, Wait::yes); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream) {
    return copy(hStream, pCopy, Wait::no);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy) { return copy(nullptr, pCopy, Wait::yes); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream) {
    return copy(hStream, pCopy, Wait::no);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy) { return copy(nullptr, pCopy, Wait::yes); }
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream) {
    return copy(hStream, pCopy, Wait::no);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
                                 CUstream hStream) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (numOps == 0 || opList == nullptr || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t index = 0; index < numOps; ++index) {
        const auto &one = opList[index];
        // Row lengths and extents count elements where an array is involved; plain memory counts bytes.
        if (one.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY || one.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
            return CUDA_ERROR_NOT_SUPPORTED;
        const BoxCopy box{
            .destination = operand(one.dst),
            .source = operand(one.src),
            .box = {.width = one.extent.width, .height = one.extent.height, .depth = one.extent.depth}};
        if (const auto bad = copy(hStream, box, Wait::no); bad != CUDA_SUCCESS)
            return bad;
    }
    return CUDA_SUCCESS;
}
CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                              unsigned long long flags, CUstream hStream) {
    const auto result = cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
    if (result != CUDA_SUCCESS && failIdx != nullptr)
        *failIdx = SIZE_MAX;
    return result;
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount) {
    return line(nullptr, array_end(dstArray, dstOffset), host_end(srcHost), ByteCount, Wait::yes);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                              CUstream hStream) {
    return line(hStream, array_end(dstArray, dstOffset), host_end(srcHost), ByteCount, Wait::no);
}
CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return line(nullptr, host_end(dstHost), array_end(srcArray, srcOffset), ByteCount, Wait::yes);
}
CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
    return line(hStream, host_end(dstHost), array_end(srcArray, srcOffset), ByteCount, Wait::no);
}
CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount) {
    return line(nullptr, array_end(dstArray, dstOffset), device_end(srcDevice), ByteCount, Wait::yes);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return line(nullptr, device_end(dstDevice), array_end(srcArray, srcOffset), ByteCount, Wait::yes);
}
CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
    return line(nullptr, array_end(dstArray, dstOffset), array_end(srcArray, srcOffset), ByteCount,
                Wait::yes);
}

} // extern "C"
