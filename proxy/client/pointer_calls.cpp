// SPDX-License-Identifier: GPL-2.0-or-later
// What a pointer is: cuPointerGetAttribute and its like, and what is asked about managed memory.
#include "graph_memory.hpp"
#include "memory.hpp"

#include <bit>
#include <cstring>

using namespace singularity::client;

namespace {

// All that is known of the memory at an address.
struct Memory {
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    Range range{};
    Context *context = nullptr;
    int device = 0;
    std::uint64_t id = 0;
    std::uint64_t device_pointer = 0;
    std::uint64_t host_pointer = 0; // 0: none
    std::uint64_t pool = 0;
    bool managed = false;
    bool mapped = true;
    bool shareable = false; // cuIpcGetMemHandle takes it
};

std::optional<Memory> memory_at(std::uint64_t address) {
    const auto location = locate(address);
    if (location.where == Where::shared_host) {
        const auto host = find_host(address);
        if (!host)
            return std::nullopt;
        return Memory{.type = host->kind == HostKind::managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                      .range = host->range,
                      .context = host->context,
                      .device = host->context->session->ordinal(),
                      .id = host->id,
                      .device_pointer = location.wire,
                      .host_pointer = address,
                      .managed = host->kind == HostKind::managed};
    }
    if (location.where != Where::device)
        return std::nullopt;
    Memory memory{
        .type = CU_MEMORYTYPE_DEVICE, .device = location.session->ordinal(), .device_pointer = address};
    if (const auto allocation = find_device(address)) {
        memory.range = allocation->range;
        memory.context = allocation->context;
        memory.id = allocation->id;
        memory.pool = allocation->pool;
        memory.shareable = allocation->pool == 0 && allocation->shared != Shared::opened &&
                           !graph_memory_at(allocation->range.address);
    } else if (const auto mapping = find_mapping(address)) {
        memory.range = mapping->range;
        memory.context = mapping->context;
        memory.id = mapping->range.address;
    } else if (const auto variable = find_variable(address)) {
        memory.range = variable->range;
        memory.context = variable->context;
        memory.id = variable->range.address;
    } else {
        return std::nullopt; // reserved, or between allocations
    }
    return memory;
}

template <class T>
CUresult give(void *data, T value) {
    std::memcpy(data, &value, sizeof(value));
    return CUDA_SUCCESS;
}

CUresult attribute_of(void *data, CUpointer_attribute attribute, std::uint64_t address,
                      const Memory &memory) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return give(data, memory.context == nullptr ? CUcontext{} : memory.context->value());
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return give(data, static_cast<unsigned>(memory.type));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return give(data, static_cast<CUdeviceptr>(memory.device_pointer));
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (memory.host_pointer == 0)
            return CUDA_ERROR_INVALID_VALUE;
        return give(data, std::bit_cast<void *>(memory.host_pointer));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return give(data, static_cast<unsigned long long>(memory.id));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return give(data, 0U);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return give(data, static_cast<unsigned>(memory.managed));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return give(data, memory.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return give(data, static_cast<unsigned>(memory.shareable));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return give(data, 0U);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return give(data, static_cast<CUdeviceptr>(memory.range.address));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return give(data, static_cast<size_t>(memory.range.size));
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return give(data, static_cast<unsigned>(memory.mapped));
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return give(data, 0ULL);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return give(data, static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return give(data, std::bit_cast<CUmemoryPool>(memory.pool));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return give(data, static_cast<size_t>(memory.range.size));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return give(data, static_cast<CUdeviceptr>(memory.range.address));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return give(data, static_cast<unsigned long long>(memory.id));
    default:
        static_cast<void>(address);
        return CUDA_ERROR_INVALID_VALUE;
    }
}

// Bytes of an attribute's value, for those who ask about memory that is the program's own: all are zero.
std::size_t value_size(CUpointer_attribute attribute) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return sizeof(std::uint64_t);
    default:
        return sizeof(std::uint32_t);
    }
}

} // namespace

extern "C" {

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (data == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto memory = memory_at(ptr);
    return memory ? attribute_of(data, attribute, ptr, *memory) : CUDA_ERROR_INVALID_VALUE;
}

// Unlike the single form it says nothing where there is nothing to say (cuda.h, cuPointerGetAttributes).
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr ptr) {
    constexpr int kNoDevice = -2; // cudaInvalidDeviceId, what the driver gives for memory that is no device's
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (numAttributes == 0 || attributes == nullptr || data == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto memory = memory_at(ptr);
    for (unsigned index = 0; index < numAttributes; ++index) {
        if (data[index] == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        std::memset(data[index], 0, value_size(attributes[index]));
        if (memory)
            static_cast<void>(attribute_of(data[index], attributes[index], ptr, *memory));
        else if (attributes[index] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            static_cast<void>(give(data[index], kNoDevice));
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    // Memory operations on such memory are synchronised with the host here at least as strictly as is asked
    // for.
    if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !memory_at(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// Managed memory is host memory that the device reaches: it never moves, so advice and prefetching change
// nothing.
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
    static_cast<void>(location);
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const auto memory = memory_at(devPtr);
    if (!memory || !memory->managed || count == 0 || !memory->range.contains(devPtr, count) || advice < 1 ||
        advice > 6)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (device != CU_DEVICE_CPU && process().session(device) == nullptr)
        return CUDA_ERROR_INVALID_DEVICE;
    return cuMemAdvise_v2(devPtr, count, advice, {});
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream) {
    static_cast<void>(location);
    static_cast<void>(hStream);
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const auto memory = memory_at(devPtr);
    if (!memory || !memory->managed || count == 0 || flags != 0 || !memory->range.contains(devPtr, count))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (dstDevice != CU_DEVICE_CPU && process().session(dstDevice) == nullptr)
        return CUDA_ERROR_INVALID_DEVICE;
    return cuMemPrefetchAsync_v2(devPtr, count, {}, 0, hStream);
}
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                                 size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
    if (dptrs == nullptr || sizes == nullptr || count == 0 || prefetchLocs == nullptr ||
        prefetchLocIdxs == nullptr || numPrefetchLocs == 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t index = 0; index < count; ++index)
        if (const auto bad = cuMemPrefetchAsync_v2(dptrs[index], sizes[index], prefetchLocs[0], 0, hStream);
            bad != CUDA_SUCCESS)
            return bad;
    return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const auto memory = memory_at(devPtr);
    if (data == nullptr || dataSize == 0 || !memory || !memory->managed || count == 0 ||
        !memory->range.contains(devPtr, count))
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        return dataSize == sizeof(int) ? give(data, 0) : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        return dataSize == sizeof(int) ? give(data, int{CU_DEVICE_INVALID}) : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
        if (dataSize % sizeof(int) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t at = 0; at < dataSize; at += sizeof(int))
            static_cast<void>(give(static_cast<std::byte *>(data) + at, int{CU_DEVICE_INVALID}));
        return CUDA_SUCCESS;
    }
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        return dataSize == sizeof(CUmemLocationType) ? give(data, CU_MEM_LOCATION_TYPE_INVALID)
                                                     : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        return dataSize == sizeof(int) ? give(data, 0) : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t index = 0; index < numAttributes; ++index)
        if (const auto bad =
                cuMemRangeGetAttribute(data[index], dataSizes[index], attributes[index], devPtr, count);
            bad != CUDA_SUCCESS)
            return bad;
    return CUDA_SUCCESS;
}

// Managed memory is everybody's at all times.
CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
    auto stream = std::bit_cast<std::uint64_t>(hStream);
    if (const auto bad = check_handle(singularity::driver_api::kHandleStream, stream); bad != CUDA_SUCCESS)
        return bad;
    drop_route();
    const auto memory = memory_at(dptr);
    if (!memory || !memory->managed || (length != 0 && !memory->range.contains(dptr, length)) ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

} // extern "C"
