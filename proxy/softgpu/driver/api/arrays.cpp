// SPDX-License-Identifier: GPL-2.0-or-later
// CUDA arrays and mipmapped arrays.
#include "driver/api/entry.hpp"
#include "driver/array.hpp"
#include "driver/capture.hpp"
#include "driver/copy.hpp"

#include <utility>

namespace singularity::softgpu::driver {

namespace {

CUresult create(Context &context, CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR &description) {
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    const auto array = Array::make(context, description);
    if (!array)
        return array.error();
    *out = (*array)->handle;
    return CUDA_SUCCESS;
}

// As for memory: nothing runs any more that could use it.
template <class Object>
CUresult idle(Context &context, const Object &object) {
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    if (object.belongs_to(context))
        return context.synchronize();
    for (const auto &other : contexts().all([&](const Context &one) { return object.belongs_to(one); }))
        if (const CUresult failed = other->synchronize(); failed != CUDA_SUCCESS)
            return failed;
    return CUDA_SUCCESS;
}

template <class Work>
CUresult with_array(CUarray handle, Work &&work) {
    return with_context([&](Context &context) {
        const auto array = arrays().get(handle);
        return array ? std::forward<Work>(work)(context, **array) : array.error();
    });
}

// An end of a copy within a row of a one-dimensional array, or in linear memory.
struct Line {
    CUmemorytype type = CU_MEMORYTYPE_ARRAY;
    std::uint64_t address = 0;
    CUarray array = nullptr;
    std::size_t offset = 0;
};
Line row_line(CUarray array, std::size_t offset) { return {CU_MEMORYTYPE_ARRAY, 0, array, offset}; }
Line host_line(const void *memory) { return {CU_MEMORYTYPE_HOST, address_of(memory), nullptr, 0}; }
Line device_line(CUdeviceptr memory) { return {CU_MEMORYTYPE_DEVICE, memory, nullptr, 0}; }

CUresult line(const Line &to, const Line &from, std::size_t size, CUstream stream, bool asynchronous) {
    return with_context([&](Context &context) {
        CUDA_MEMCPY3D copy = linear_copy(to.address, to.type, from.address, from.type, size);
        copy.srcArray = from.array;
        copy.srcXInBytes = from.offset;
        copy.dstArray = to.array;
        copy.dstXInBytes = to.offset;
        return perform(context, stream, copy, asynchronous);
    });
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray) {
    return with_context([&](Context &context) {
        if (pHandle == nullptr || pAllocateArray == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        return create(context, pHandle,
                      {pAllocateArray->Width, pAllocateArray->Height, 0, pAllocateArray->Format,
                       pAllocateArray->NumChannels, 0});
    });
}
CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray) {
    return with_context([&](Context &context) {
        if (pHandle == nullptr || pAllocateArray == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        return create(context, pHandle, *pAllocateArray);
    });
}
CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray) {
    return with_array(hArray, [&](Context &, const Array &array) {
        const auto &all = array.description();
        return give(pArrayDescriptor,
                    CUDA_ARRAY_DESCRIPTOR{all.Width, all.Height, all.Format, all.NumChannels});
    });
}
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray) {
    return with_array(
        hArray, [&](Context &, const Array &array) { return give(pArrayDescriptor, array.description()); });
}
CUresult cuArrayDestroy(CUarray hArray) {
    return with_array(hArray, [&](Context &context, const Array &array) {
        if (array.of() != nullptr)
            return CUDA_ERROR_INVALID_VALUE; // a level ends with all of them
        if (const CUresult failed = idle(context, array); failed != CUDA_SUCCESS)
            return failed;
        arrays().take(hArray);
        return CUDA_SUCCESS;
    });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
    return with_context([&](Context &context) {
        if (pHandle == nullptr || pMipmappedArrayDesc == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
            return unsafe;
        return store(pHandle, make_mipmapped(context, *pMipmappedArrayDesc, numMipmapLevels));
    });
}
CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
    return with_context([&](Context &) {
        const auto all = mipmapped_arrays().get(hMipmappedArray);
        if (!all)
            return all.error();
        if (level >= (*all)->levels.size())
            return CUDA_ERROR_INVALID_VALUE;
        return give(pLevelArray, (*all)->levels[level]->handle);
    });
}
CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
    return with_context([&](Context &context) {
        const auto all = mipmapped_arrays().get(hMipmappedArray);
        if (!all)
            return all.error();
        if (const CUresult failed = idle(context, **all); failed != CUDA_SUCCESS)
            return failed;
        end_mipmapped(hMipmappedArray);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount) {
    return line(row_line(dstArray, dstOffset), host_line(srcHost), ByteCount, nullptr, false);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                              CUstream hStream) {
    return line(row_line(dstArray, dstOffset), host_line(srcHost), ByteCount, hStream, true);
}
CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return line(host_line(dstHost), row_line(srcArray, srcOffset), ByteCount, nullptr, false);
}
CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
    return line(host_line(dstHost), row_line(srcArray, srcOffset), ByteCount, hStream, true);
}
CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount) {
    return line(row_line(dstArray, dstOffset), device_line(srcDevice), ByteCount, nullptr, false);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return line(device_line(dstDevice), row_line(srcArray, srcOffset), ByteCount, nullptr, false);
}
CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
    return line(row_line(dstArray, dstOffset), row_line(srcArray, srcOffset), ByteCount, nullptr, false);
}

} // extern "C"
