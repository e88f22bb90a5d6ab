// SPDX-License-Identifier: GPL-2.0-or-later
// What the driver knows of an address.
#include "driver/api/entry.hpp"
#include "driver/memory_map.hpp"

#include <bit>
#include <cstdint>

namespace singularity::softgpu::driver {

namespace {

template <class T>
CUresult put(void *out, T value) {
    *static_cast<T *>(out) = value;
    return CUDA_SUCCESS;
}

// Integers whose width cuda.h leaves open ("boolean") are int, as in its samples; unsigned where it says so.
CUresult answer(void *out, CUpointer_attribute attribute, const Allocation &found, CUdeviceptr pointer) {
    const bool on_host = found.on_host();
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        if (found.context == nullptr || found.kind == MemoryKind::mapped)
            return put<CUcontext>(out, nullptr);
        return put(out, found.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put<unsigned>(out, on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return put(out, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!on_host && found.kind != MemoryKind::managed)
            return CUDA_ERROR_INVALID_VALUE;
        return put(out, std::bit_cast<void *>(pointer));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return put<int>(out, found.sync_memops ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return put<unsigned long long>(out, found.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return put<unsigned>(out, found.kind == MemoryKind::managed ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return put<int>(out, static_cast<int>(found.device));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return put<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return put(out, CUdeviceptr{found.address});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return put(out, std::size_t{found.size});
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return put<unsigned>(out, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return put<unsigned long long>(out, 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return put<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: {
        const auto context = current_context();
        const bool all = found.kind != MemoryKind::mapped && found.kind != MemoryKind::pool;
        const unsigned device = context ? (*context)->device().ordinal() : found.device;
        const bool write = all || (found.writable >> device & 1U) != 0;
        const bool read = all || (found.readable >> device & 1U) != 0;
        return put<CUmemAccess_flags>(out, write  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                           : read ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                  : CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return put(out, found.pool);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return put<unsigned long long>(out, found.id);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: // GPUDirect RDMA's kernel interface
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult get(void *out, CUpointer_attribute attribute, CUdeviceptr pointer) {
    const auto found = memory_map().holding(pointer);
    if (out == nullptr || !found)
        return CUDA_ERROR_INVALID_VALUE;
    return answer(out, attribute, *found, pointer);
}

// What an address that the driver does not know has of each attribute: nothing, in its size.
void clear(void *out, CUpointer_attribute attribute) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *static_cast<std::uint64_t *>(out) = 0;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int *>(out) = CU_DEVICE_INVALID;
        break;
    default:
        *static_cast<unsigned *>(out) = 0;
    }
}

CUresult get_many(unsigned count, const CUpointer_attribute *attributes, void **data, CUdeviceptr pointer) {
    if (count == 0 || attributes == nullptr || data == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto found = memory_map().holding(pointer);
    for (unsigned at = 0; at < count; ++at) {
        if (data[at] == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        if (!found || answer(data[at], attributes[at], *found, pointer) != CUDA_SUCCESS)
            clear(data[at], attributes[at]);
    }
    return CUDA_SUCCESS;
}

CUresult set(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    const auto found = memory_map().holding(pointer);
    if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !found)
        return CUDA_ERROR_INVALID_VALUE;
    memory_map().change(found->address, [&](Allocation &allocation) {
        allocation.sync_memops = *static_cast<const unsigned *>(value) != 0;
    });
    return CUDA_SUCCESS;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    return with_driver([&] { return get(data, attribute, ptr); });
}
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr ptr) {
    return with_driver([&] { return get_many(numAttributes, attributes, data, ptr); });
}
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
    return with_driver([&] { return set(value, attribute, ptr); });
}

} // extern "C"
