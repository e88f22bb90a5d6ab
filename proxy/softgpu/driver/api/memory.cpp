// SPDX-License-Identifier: GPL-2.0-or-later
// Device and managed memory.
#include "driver/api/entry.hpp"
#include "driver/capture.hpp"
#include "driver/copy.hpp"
#include "driver/graph.hpp"
#include "driver/memory_map.hpp"
#include "driver/pool.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

// What was advised about managed memory: kept to be asked for.
struct Advice {
    bool read_mostly = false;
    CUmemLocation preferred{CU_MEM_LOCATION_TYPE_INVALID, 0};
    CUmemLocation prefetched{CU_MEM_LOCATION_TYPE_INVALID, 0};
    std::uint64_t accessed_by = 0; // bit per device
    bool accessed_by_host = false;
};

Allocation owned(const Context &context, const Block &block, MemoryKind kind) {
    Allocation allocation{};
    allocation.address = block.address;
    allocation.size = block.size;
    allocation.kind = kind;
    allocation.owner = context.id();
    allocation.context = context.handle();
    allocation.device = context.device().ordinal();
    allocation.mapping = block.slab;
    return allocation;
}

CUresult allocate(Context &context, CUdeviceptr *out, std::size_t size) {
    if (out == nullptr || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    auto block = context.device_heap().allocate(size);
    if (!block && block.error() == CUDA_ERROR_OUT_OF_MEMORY) {
        // Pools may hold what they do not need.
        for (const auto &pool :
             pools().all([&](const Pool &one) { return &one.device() == &context.device(); }))
            pool->trim_to(0);
        drop_everywhere();
        block = context.device_heap().allocate(size);
    }
    if (!block)
        return block.error();
    memory_map().add(owned(context, *block, MemoryKind::device));
    *out = block->address;
    return CUDA_SUCCESS;
}

CUresult allocate_pitch(Context &context, CUdeviceptr *out, std::size_t *pitch, std::size_t width,
                        std::size_t height, unsigned element) {
    if (pitch == nullptr || (element != 4 && element != 8 && element != 16) || width == 0 || height == 0 ||
        width > (std::size_t{1} << 40U) || height > (std::size_t{1} << 40U))
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = round_up(width, kPitchAlignment);
    if (*pitch > (std::size_t{1} << 46U) / height)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return allocate(context, out, *pitch * height);
}

CUresult allocate_managed(Context &context, CUdeviceptr *out, std::size_t size, unsigned flags) {
    if (out == nullptr || size == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    const auto block = context.managed_heap().allocate(size);
    if (!block)
        return block.error();
    Allocation allocation = owned(context, *block, MemoryKind::managed);
    allocation.flags = flags;
    allocation.more = std::make_shared<Advice>();
    memory_map().add(std::move(allocation));
    *out = block->address;
    return CUDA_SUCCESS;
}

CUresult free_graph_memory(CUdeviceptr address, const GraphMemory &memory) {
    if (!memory.allocated)
        return CUDA_ERROR_INVALID_VALUE;
    if (const auto owner = contexts().find(memory.context); owner != nullptr && owner->active)
        if (const CUresult failed = owner->synchronize(); failed != CUDA_SUCCESS)
            return failed;
    if (!end_graph_memory(address))
        return CUDA_ERROR_INVALID_VALUE; // another thread was faster
    free_of_graph(address);
    drop_everywhere();
    return CUDA_SUCCESS;
}

CUresult free(CUdeviceptr address) {
    if (address == 0)
        return CUDA_SUCCESS;
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    if (const auto memory = graph_memory_at(address))
        return free_graph_memory(address, *memory);
    const auto found = memory_map().at(address);
    const auto freeable = [](const Allocation &one) {
        return !one.internal && (one.kind == MemoryKind::device || one.kind == MemoryKind::managed ||
                                 one.kind == MemoryKind::pool);
    };
    if (!found || !freeable(*found))
        return CUDA_ERROR_INVALID_VALUE;
    const auto owner = contexts().find(found->context);
    // As NVIDIA's driver: nothing runs any more that could use it.
    if (owner != nullptr && owner->active)
        if (const CUresult failed = owner->synchronize(); failed != CUDA_SUCCESS)
            return failed;
    if (found->kind == MemoryKind::pool) {
        if (const auto pool = pools().find(found->pool))
            pool->free_now(address);
        else
            free_of_graph(address);
        drop_everywhere();
        return CUDA_SUCCESS;
    }
    if (!memory_map().remove(address, found->id))
        return CUDA_ERROR_INVALID_VALUE; // another thread was faster
    drop_everywhere();
    if (owner != nullptr) {
        Heap &heap = found->kind == MemoryKind::managed ? owner->managed_heap() : owner->device_heap();
        heap.free(address);
    }
    return CUDA_SUCCESS;
}

CUresult information(const Context &context, std::size_t *free, std::size_t *total) {
    if (free == nullptr || total == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *total = context.device().memory().size();
    *free = *total - context.device().memory().used();
    return CUDA_SUCCESS;
}

CUresult address_range(CUdeviceptr *base, std::size_t *size, CUdeviceptr address) {
    const auto found = memory_map().holding(address);
    if (!found)
        return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr)
        *base = found->address;
    if (size != nullptr)
        *size = found->size;
    return CUDA_SUCCESS;
}

// --- Managed memory: it is the host's, and everywhere at once, so advice has nothing to do.

// Every byte managed, or CUDA_ERROR_INVALID_VALUE.
Result<std::vector<Allocation>> managed_range(CUdeviceptr address, std::size_t size) {
    Holds holds;
    auto found = memory_map().within(address, size);
    const bool all =
        std::ranges::all_of(found, [](const Allocation &one) { return one.kind == MemoryKind::managed; });
    if (size == 0 || found.empty() || !all || !hold(address, size, holds))
        return refused(CUDA_ERROR_INVALID_VALUE);
    return found;
}

bool valid_location(const CUmemLocation &location) {
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return platform().device(location.id).has_value();
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return true;
    default:
        return false;
    }
}

CUmemLocation location_of(CUdevice device) {
    if (device == CU_DEVICE_CPU)
        return {CU_MEM_LOCATION_TYPE_HOST, 0};
    return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

template <class Change>
CUresult change_advice(CUdeviceptr address, std::size_t size, Change &&change) {
    const auto range = managed_range(address, size);
    if (!range)
        return range.error();
    for (const Allocation &one : *range)
        memory_map().change(one.address, [&](Allocation &allocation) {
            auto advice = std::make_shared<Advice>();
            if (allocation.more != nullptr)
                *advice = *std::static_pointer_cast<Advice>(allocation.more);
            change(*advice);
            allocation.more = std::move(advice);
        });
    return CUDA_SUCCESS;
}

CUresult advise(CUdeviceptr address, std::size_t size, CUmem_advise advice, const CUmemLocation &location) {
    const bool located = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                         advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    if (located && !valid_location(location))
        return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE
                                                            : CUDA_ERROR_INVALID_VALUE;
    return change_advice(address, size, [&](Advice &known) {
        const bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        const std::uint64_t bit = on_device ? std::uint64_t{1} << static_cast<unsigned>(location.id) : 0;
        switch (advice) {
        case CU_MEM_ADVISE_SET_READ_MOSTLY:
        case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
            known.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
            break;
        case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
            known.preferred = location;
            break;
        case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
            known.preferred = {CU_MEM_LOCATION_TYPE_INVALID, 0};
            break;
        case CU_MEM_ADVISE_SET_ACCESSED_BY:
            known.accessed_by |= bit;
            known.accessed_by_host |= !on_device;
            break;
        case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
            known.accessed_by &= ~bit;
            known.accessed_by_host &= on_device;
            break;
        }
    });
}

CUresult prefetch(CUdeviceptr address, std::size_t size, const CUmemLocation &location, unsigned flags,
                  CUstream handle) {
    return with_stream(handle, [&](Context &context, Stream &stream) {
        if (flags != 0)
            return CUDA_ERROR_INVALID_VALUE;
        if (!valid_location(location))
            return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE
                                                                : CUDA_ERROR_INVALID_VALUE;
        if (const auto captured = capture(context, stream, EmptyOperation{}, true))
            return *captured;
        return change_advice(address, size, [&](Advice &known) { known.prefetched = location; });
    });
}

CUresult prefetch_batch(CUdeviceptr *addresses, std::size_t *sizes, std::size_t count,
                        CUmemLocation *locations, std::size_t *indices, std::size_t location_count,
                        unsigned long long flags, CUstream stream) {
    if (addresses == nullptr || sizes == nullptr || count == 0 || locations == nullptr ||
        indices == nullptr || location_count == 0 || flags != 0 || indices[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    std::size_t which = 0;
    for (std::size_t at = 0; at < count; ++at) {
        if (which + 1 < location_count && indices[which + 1] == at)
            ++which;
        if (const CUresult one = prefetch(addresses[at], sizes[at], locations[which], 0, stream);
            one != CUDA_SUCCESS)
            return one;
    }
    return CUDA_SUCCESS;
}

// The content may be lost, so it is kept.
CUresult discard_batch(const CUdeviceptr *addresses, const std::size_t *sizes, std::size_t count,
                       unsigned long long flags, CUstream stream) {
    return with_stream(stream, [&](Context &, Stream &) {
        if (addresses == nullptr || sizes == nullptr || count == 0 || flags != 0)
            return CUDA_ERROR_INVALID_VALUE;
        for (std::size_t at = 0; at < count; ++at)
            if (const auto range = managed_range(addresses[at], sizes[at]); !range)
                return range.error();
        return CUDA_SUCCESS;
    });
}

CUresult attach(CUstream handle, CUdeviceptr address, std::size_t length, unsigned flags) {
    return with_stream(handle, [&](Context &, Stream &) {
        const auto found = memory_map().at(address);
        const bool known =
            flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
        if (!found || found->kind != MemoryKind::managed || !known || (length != 0 && length != found->size))
            return CUDA_ERROR_INVALID_VALUE;
        return CUDA_SUCCESS;
    });
}

CUdevice device_number(const CUmemLocation &location) {
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return location.id;
    return location.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

CUresult range_attribute(void *data, std::size_t data_size, CUmem_range_attribute attribute,
                         CUdeviceptr address, std::size_t size) {
    const auto range = managed_range(address, size);
    if (!range)
        return range.error();
    if (data == nullptr || data_size < sizeof(int) || data_size % sizeof(int) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const auto first = range->front().more == nullptr ? std::make_shared<Advice>()
                                                      : std::static_pointer_cast<Advice>(range->front().more);
    auto *const out = static_cast<int *>(data);
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *out = first->read_mostly ? 1 : 0;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *out = device_number(first->preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *out = device_number(first->prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *out = first->preferred.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *out = first->preferred.id;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *out = first->prefetched.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *out = first->prefetched.id;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
        std::size_t at = 0;
        const std::size_t room = data_size / sizeof(int);
        if (first->accessed_by_host && at < room)
            out[at++] = CU_DEVICE_CPU;
        for (int device = 0; device < 64 && at < room; ++device)
            if ((first->accessed_by >> static_cast<unsigned>(device) & 1U) != 0)
                out[at++] = device;
        std::fill(out + at, out + room, static_cast<int>(CU_DEVICE_INVALID));
        return CUDA_SUCCESS;
    }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult range_attributes(void **data, std::size_t *sizes, CUmem_range_attribute *attributes,
                          std::size_t count, CUdeviceptr address, std::size_t size) {
    if (data == nullptr || sizes == nullptr || attributes == nullptr || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t at = 0; at < count; ++at)
        if (const CUresult one = range_attribute(data[at], sizes[at], attributes[at], address, size);
            one != CUDA_SUCCESS)
            return one;
    return CUDA_SUCCESS;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    return with_context([&](Context &context) { return information(context, free, total); });
}
CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    return with_context([&](Context &context) { return allocate(context, dptr, bytesize); });
}
CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
    return with_context([&](Context &context) {
        return allocate_pitch(context, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    });
}
CUresult cuMemFree_v2(CUdeviceptr dptr) {
    return with_context([&](Context &) { return free(dptr); });
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    if (pbase == nullptr && psize == nullptr) // nothing is asked, so nobody looks at the address
        return CUDA_SUCCESS;
    return with_context([&](Context &) { return address_range(pbase, psize, dptr); });
}
CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    return with_context([&](Context &context) { return allocate_managed(context, dptr, bytesize, flags); });
}
CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    return with_context([&](Context &) { return advise(devPtr, count, advice, location_of(device)); });
}
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
    return with_context([&](Context &) { return advise(devPtr, count, advice, location); });
}
CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
    return prefetch(devPtr, count, location_of(dstDevice), 0, hStream);
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream) {
    return prefetch(devPtr, count, location, flags, hStream);
}
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                                 size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
    return prefetch_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                          hStream);
}
CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags,
                                CUstream hStream) {
    return discard_batch(dptrs, sizes, count, flags, hStream);
}
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                           CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
    return prefetch_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                          hStream);
}
CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
    return with_context([&](Context &) { return range_attribute(data, dataSize, attribute, devPtr, count); });
}
CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
    return with_context([&](Context &) {
        return range_attributes(data, dataSizes, attributes, numAttributes, devPtr, count);
    });
}
CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
    return attach(hStream, dptr, length, flags);
}

} // extern "C"
