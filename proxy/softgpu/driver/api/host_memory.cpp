// SPDX-License-Identifier: GPL-2.0-or-later
// Pinned and registered host memory. Its device address is its host address.
#include "driver/api/entry.hpp"
#include "driver/capture.hpp"
#include "driver/memory_map.hpp"

#include <bit>
#include <utility>

#include <sys/mman.h>

namespace singularity::softgpu::driver {

namespace {

constexpr unsigned kAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;

Allocation of(const Context &context, std::uint64_t address, std::size_t size, MemoryKind kind,
              unsigned flags) {
    Allocation allocation{};
    allocation.address = address;
    allocation.size = size;
    allocation.kind = kind;
    allocation.owner = context.id();
    allocation.context = context.handle();
    allocation.device = context.device().ordinal();
    allocation.flags = flags;
    return allocation;
}

CUresult allocate(Context &context, void **out, std::size_t size, unsigned flags) {
    if (out == nullptr || size == 0 || (flags & ~kAllocFlags) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    auto block = context.host_heap().allocate(size);
    if (!block)
        return block.error();
    Allocation allocation =
        of(context, block->address, size, MemoryKind::pinned, flags | CU_MEMHOSTALLOC_DEVICEMAP);
    allocation.mapping = block->slab;
    memory_map().add(std::move(allocation));
    *out = std::bit_cast<void *>(block->address);
    return CUDA_SUCCESS;
}

CUresult free_host(const void *pointer) {
    if (pointer == nullptr)
        return CUDA_SUCCESS;
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    const auto found = memory_map().at(address_of(pointer));
    if (!found || found->kind != MemoryKind::pinned || !memory_map().remove(found->address, found->id))
        return CUDA_ERROR_INVALID_VALUE;
    drop_everywhere();
    if (const auto owner = contexts().find(found->context))
        owner->host_heap().free(found->address);
    return CUDA_SUCCESS;
}

bool is_mapped(std::uint64_t address, std::size_t size) {
    const std::uint64_t first = address / kPage * kPage;
    return msync(std::bit_cast<void *>(first), round_up(address + size, kPage) - first, MS_ASYNC) == 0;
}

CUresult enroll(Context &context, const void *pointer, std::size_t size, unsigned flags) {
    const std::uint64_t address = address_of(pointer);
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (pointer == nullptr || size == 0 || size > UINT64_MAX - address || (flags & ~kRegisterFlags) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    if (!is_mapped(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    if (memory_map().any(address, size))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    Allocation allocation =
        of(context, address, size, MemoryKind::registered, flags | CU_MEMHOSTREGISTER_DEVICEMAP);
    allocation.read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    allocation.mapping = std::make_shared<Mapping>(address, size, std::function<void()>{});
    memory_map().add(std::move(allocation));
    return CUDA_SUCCESS;
}

// The program may unmap the memory as soon as this has returned, so nothing may use it any more.
CUresult dismiss(const void *pointer) {
    if (pointer == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    auto found = memory_map().at(address_of(pointer));
    if (!found || found->kind != MemoryKind::registered)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    // Work that was queued before may still mean it.
    if (const auto owner = contexts().find(found->context))
        for (const CompletionPtr &work : owner->outstanding())
            work->wait();
    if (!memory_map().remove(found->address, found->id))
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    drop_everywhere();
    const CompletionPtr gone = found->mapping->gone();
    found->mapping.reset();
    gone->wait();
    return CUDA_SUCCESS;
}

CUresult device_pointer(CUdeviceptr *out, const void *pointer, unsigned flags) {
    const auto found = memory_map().holding(address_of(pointer));
    if (out == nullptr || flags != 0 || !found || !found->on_host())
        return CUDA_ERROR_INVALID_VALUE;
    *out = address_of(pointer);
    return CUDA_SUCCESS;
}

CUresult get_flags(unsigned *out, const void *pointer) {
    const auto found = memory_map().holding(address_of(pointer));
    if (out == nullptr || !found || !found->on_host())
        return CUDA_ERROR_INVALID_VALUE;
    *out = found->flags;
    return CUDA_SUCCESS;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) {
    return with_context([&](Context &context) { return allocate(context, pp, bytesize, 0); });
}
CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags) {
    return with_context([&](Context &context) { return allocate(context, pp, bytesize, Flags); });
}
CUresult cuMemFreeHost(void *p) {
    return with_context([&](Context &) { return free_host(p); });
}
CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags) {
    return with_context([&](Context &context) { return enroll(context, p, bytesize, Flags); });
}
CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
    return with_context([&](Context &context) { return enroll(context, p, bytesize, Flags); });
}
CUresult cuMemHostUnregister(void *p) {
    return with_context([&](Context &) { return dismiss(p); });
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
    return with_context([&](Context &) { return device_pointer(pdptr, p, Flags); });
}
CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p) {
    return with_context([&](Context &) { return get_flags(pFlags, p); });
}

} // extern "C"
