// SPDX-License-Identifier: GPL-2.0-or-later
// Copies and fills.
#include "driver/api/entry.hpp"
#include "driver/copy.hpp"

#include <bit>
#include <cstdint>

namespace singularity::softgpu::driver {

namespace {

struct From {
    std::uint64_t address;
    CUmemorytype type;
};

CUresult linear(From to, From from, std::size_t size, CUstream stream, bool asynchronous) {
    return with_context([&](Context &context) {
        return perform(context, stream, linear_copy(to.address, to.type, from.address, from.type, size),
                       asynchronous);
    });
}

From host(const void *pointer) { return {address_of(pointer), CU_MEMORYTYPE_HOST}; }
From device(CUdeviceptr pointer) { return {pointer, CU_MEMORYTYPE_DEVICE}; }
From any(CUdeviceptr pointer) { return {pointer, CU_MEMORYTYPE_UNIFIED}; }

template <class Description>
CUresult shaped(const Description *copy, CUstream stream, bool asynchronous) {
    return with_context([&](Context &context) {
        if (copy == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        if constexpr (std::is_same_v<Description, CUDA_MEMCPY3D>)
            return perform(context, stream, *copy, asynchronous);
        else
            return perform(context, stream, copy_of(*copy), asynchronous);
    });
}

CUresult check_contexts(CUcontext one, CUcontext other) {
    return with_driver([&] {
        return contexts().find(one) == nullptr || contexts().find(other) == nullptr
                   ? CUDA_ERROR_INVALID_CONTEXT
                   : CUDA_SUCCESS;
    });
}

CUresult fill(CUdeviceptr target, std::size_t pitch, unsigned value, unsigned unit, std::size_t width,
              std::size_t height, CUstream stream, bool asynchronous) {
    return with_context([&](Context &context) {
        CUDA_MEMSET_NODE_PARAMS description{};
        description.dst = target;
        description.pitch = pitch;
        description.value = value;
        description.elementSize = unit;
        description.width = width;
        description.height = height;
        return perform(context, stream, description, asynchronous);
    });
}

// Copies of a batch keep their order, which is more than a program may rely on.
CUresult batch(const CUdeviceptr *targets, const CUdeviceptr *sources, const std::size_t *sizes,
               std::size_t count, CUmemcpyAttributes *attributes, std::size_t attribute_count,
               std::size_t *failed, CUstream stream) {
    return with_context([&](Context &context) {
        if (failed != nullptr)
            *failed = SIZE_MAX;
        if (targets == nullptr || sources == nullptr || sizes == nullptr || count == 0 ||
            attributes == nullptr || attribute_count == 0 || stream == nullptr || stream == CU_STREAM_LEGACY)
            return CUDA_ERROR_INVALID_VALUE;
        for (std::size_t at = 0; at < count; ++at) {
            const CUresult one = perform(context, stream,
                                         linear_copy(targets[at], CU_MEMORYTYPE_UNIFIED, sources[at],
                                                     CU_MEMORYTYPE_UNIFIED, sizes[at]),
                                         true);
            if (one != CUDA_SUCCESS) {
                if (failed != nullptr)
                    *failed = at;
                return one;
            }
        }
        return CUDA_SUCCESS;
    });
}

// Rows and slices of an operand of a batch are counted in bytes here: arrays alone have wider elements.
bool set_operand(const CUmemcpy3DOperand &operand, const CUextent3D &extent, CUdeviceptr &address,
                 std::size_t &pitch, std::size_t &height) {
    if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
        return false;
    address = operand.op.ptr.ptr;
    pitch = operand.op.ptr.rowLength == 0 ? extent.width : operand.op.ptr.rowLength;
    height = operand.op.ptr.layerHeight == 0 ? extent.height : operand.op.ptr.layerHeight;
    return true;
}

CUresult batch_3d(std::size_t count, const CUDA_MEMCPY3D_BATCH_OP *list, std::size_t *failed,
                  unsigned long long flags, CUstream stream) {
    return with_context([&](Context &context) {
        if (failed != nullptr)
            *failed = SIZE_MAX;
        if (list == nullptr || count == 0 || flags != 0 || stream == nullptr || stream == CU_STREAM_LEGACY)
            return CUDA_ERROR_INVALID_VALUE;
        for (std::size_t at = 0; at < count; ++at) {
            CUDA_MEMCPY3D copy{};
            copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
            copy.WidthInBytes = list[at].extent.width;
            copy.Height = list[at].extent.height;
            copy.Depth = list[at].extent.depth;
            const bool plain =
                set_operand(list[at].src, list[at].extent, copy.srcDevice, copy.srcPitch, copy.srcHeight) &&
                set_operand(list[at].dst, list[at].extent, copy.dstDevice, copy.dstPitch, copy.dstHeight);
            const CUresult one = plain ? perform(context, stream, copy, true) : CUDA_ERROR_NOT_SUPPORTED;
            if (one != CUDA_SUCCESS) {
                if (failed != nullptr)
                    *failed = at;
                return one;
            }
        }
        return CUDA_SUCCESS;
    });
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    return linear(any(dst), any(src), ByteCount, nullptr, false);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    return linear(any(dst), any(src), ByteCount, hStream, true);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
    return linear(device(dstDevice), host(srcHost), ByteCount, nullptr, false);
}
CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    return linear(host(dstHost), device(srcDevice), ByteCount, nullptr, false);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    return linear(device(dstDevice), device(srcDevice), ByteCount, nullptr, false);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                              CUstream hStream) {
    return linear(device(dstDevice), host(srcHost), ByteCount, hStream, true);
}
CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    return linear(host(dstHost), device(srcDevice), ByteCount, hStream, true);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
    return linear(device(dstDevice), device(srcDevice), ByteCount, hStream, true);
}
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
    const CUresult known = check_contexts(dstContext, srcContext);
    return known != CUDA_SUCCESS ? known
                                 : linear(device(dstDevice), device(srcDevice), ByteCount, nullptr, false);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
    const CUresult known = check_contexts(dstContext, srcContext);
    return known != CUDA_SUCCESS ? known
                                 : linear(device(dstDevice), device(srcDevice), ByteCount, hStream, true);
}
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy) { return shaped(pCopy, nullptr, false); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy) { return shaped(pCopy, nullptr, false); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream) {
    return shaped(pCopy, hStream, true);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy) { return shaped(pCopy, nullptr, false); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream) {
    return shaped(pCopy, hStream, true);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy) { return shaped(pCopy, nullptr, false); }
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream) {
    return shaped(pCopy, hStream, true);
}
CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attrs, size_t * /*attrsIdxs*/, size_t numAttrs,
                            size_t *failIdx, CUstream hStream) {
    return batch(dsts, srcs, sizes, count, attrs, numAttrs, failIdx, hStream);
}
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attrs, size_t * /*attrsIdxs*/, size_t numAttrs,
                               CUstream hStream) {
    return batch(dsts, srcs, sizes, count, attrs, numAttrs, nullptr, hStream);
}
CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                              unsigned long long flags, CUstream hStream) {
    return batch_3d(numOps, opList, failIdx, flags, hStream);
}
CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
                                 CUstream hStream) {
    return batch_3d(numOps, opList, nullptr, flags, hStream);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    return fill(dstDevice, 0, uc, 1, N, 1, nullptr, false);
}
CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
    return fill(dstDevice, 0, us, 2, N, 1, nullptr, false);
}
CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
    return fill(dstDevice, 0, ui, 4, N, 1, nullptr, false);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
    return fill(dstDevice, dstPitch, uc, 1, Width, Height, nullptr, false);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
    return fill(dstDevice, dstPitch, us, 2, Width, Height, nullptr, false);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
    return fill(dstDevice, dstPitch, ui, 4, Width, Height, nullptr, false);
}
CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    return fill(dstDevice, 0, uc, 1, N, 1, hStream, true);
}
CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
    return fill(dstDevice, 0, us, 2, N, 1, hStream, true);
}
CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
    return fill(dstDevice, 0, ui, 4, N, 1, hStream, true);
}
CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
    return fill(dstDevice, dstPitch, uc, 1, Width, Height, hStream, true);
}
CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
    return fill(dstDevice, dstPitch, us, 2, Width, Height, hStream, true);
}
CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
    return fill(dstDevice, dstPitch, ui, 4, Width, Height, hStream, true);
}

} // extern "C"
