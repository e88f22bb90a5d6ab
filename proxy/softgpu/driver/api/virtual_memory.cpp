// SPDX-License-Identifier: GPL-2.0-or-later
// Virtual memory management: addresses, memory, and mapping the one to the other.
#include "driver/api/entry.hpp"
#include "driver/memory_map.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace singularity::softgpu::driver {

namespace {

// Memory made by cuMemCreate: there until its last handle is released and its last mapping is gone.
class PhysicalAllocation {
  public:
    PhysicalAllocation(Device &of, PhysicalMemory &in, std::uint64_t at, std::uint64_t bytes,
                       const CUmemAllocationProp &wanted)
        : device(of), memory(in), offset(at), size(bytes), properties(wanted) {}
    ~PhysicalAllocation() { memory.free(offset, size); }
    PhysicalAllocation(const PhysicalAllocation &) = delete;
    PhysicalAllocation &operator=(const PhysicalAllocation &) = delete;
    PhysicalAllocation(PhysicalAllocation &&) = delete;
    PhysicalAllocation &operator=(PhysicalAllocation &&) = delete;

    Device &device; // of memory of the host: any
    PhysicalMemory &memory;
    const std::uint64_t offset;
    const std::uint64_t size;
    const CUmemAllocationProp properties;
    CUmemGenericAllocationHandle handle = 0;
    std::atomic<std::uint64_t> references{1}; // of the program
};

Handles<PhysicalAllocation, CUmemGenericAllocationHandle, HandleKind::allocation> &physical_allocations() {
    static auto &table = // outlives every thread
        *new Handles<PhysicalAllocation, CUmemGenericAllocationHandle, HandleKind::allocation>;
    return table;
}

// Reserved addresses -> size.
struct Reservations {
    std::mutex mutex;
    std::map<std::uint64_t, std::uint64_t> all;

    [[nodiscard]] bool hold(std::uint64_t address, std::uint64_t size) const {
        const auto after = all.upper_bound(address);
        if (after == all.begin())
            return false;
        const auto &[begin, length] = *std::prev(after);
        return size <= length && address - begin <= length - size;
    }
};

Reservations &reservations() {
    static auto &one = *new Reservations; // outlives every thread
    return one;
}

bool aligned(std::uint64_t value) { return value % kGranularity == 0; }

CUresult reserve(CUdeviceptr *out, std::size_t size, std::size_t alignment, CUdeviceptr wish,
                 unsigned long long flags) {
    if (out == nullptr || size == 0 || !aligned(size) || flags != 0 ||
        (alignment != 0 && !std::has_single_bit(alignment)))
        return CUDA_ERROR_INVALID_VALUE;
    const auto address =
        address_space().reserve(size, std::max<std::uint64_t>(alignment, kGranularity), wish);
    if (!address)
        return address.error();
    const std::scoped_lock lock(reservations().mutex);
    reservations().all.emplace(*address, size);
    *out = *address;
    return CUDA_SUCCESS;
}

CUresult release_addresses(CUdeviceptr address, std::size_t size) {
    {
        const std::scoped_lock lock(reservations().mutex);
        const auto found = reservations().all.find(address);
        if (found == reservations().all.end() || found->second != size || memory_map().any(address, size))
            return CUDA_ERROR_INVALID_VALUE;
        reservations().all.erase(found);
    }
    address_space().release(address, size);
    return CUDA_SUCCESS;
}

bool on_host(const CUmemAllocationProp &properties) {
    return properties.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && properties.location.id == 0;
}

// What programs make of it is counted for no device: the machine's memory is the limit.
PhysicalMemory &host_memory() {
    static auto &account = *new Account(std::uint64_t{1} << 46U);
    static auto &one = *new PhysicalMemory(account); // outlives every thread
    return one;
}

Result<Device *> device_of(const CUmemAllocationProp *properties) {
    if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return refused(CUDA_ERROR_INVALID_VALUE);
    if (on_host(*properties))
        return platform().device(0);
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return refused(CUDA_ERROR_NOT_SUPPORTED);
    return platform().device(properties->location.id);
}

CUresult create(CUmemGenericAllocationHandle *out, std::size_t size, const CUmemAllocationProp *properties,
                unsigned long long flags) {
    if (out == nullptr || size == 0 || !aligned(size) || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const auto device = device_of(properties);
    if (!device)
        return device.error();
    if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    auto &memory = on_host(*properties) ? host_memory() : (*device)->physical();
    const auto offset = memory.allocate(size);
    if (!offset)
        return offset.error();
    auto physical = std::make_shared<PhysicalAllocation>(**device, memory, *offset, size, *properties);
    physical->handle = physical_allocations().reserve();
    physical_allocations().put(physical->handle, physical);
    *out = physical->handle;
    return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
    const auto physical = physical_allocations().find(handle);
    if (physical == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (--physical->references == 0)
        physical_allocations().take(handle);
    return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr address, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
    const auto physical = physical_allocations().find(handle);
    if (physical == nullptr || size == 0 || !aligned(size) || !aligned(address) || offset != 0 ||
        flags != 0 || size > physical->size)
        return CUDA_ERROR_INVALID_VALUE;
    // The reservation stays while this is held.
    const std::scoped_lock lock(reservations().mutex);
    if (!reservations().hold(address, size) || memory_map().any(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    auto mapping = physical->memory.map(physical->offset + offset, size, address, physical);
    if (!mapping)
        return mapping.error();
    Allocation allocation{};
    allocation.address = address;
    allocation.size = size;
    allocation.kind = MemoryKind::mapped;
    allocation.device = physical->device.ordinal();
    allocation.physical = handle;
    allocation.physical_offset = offset;
    allocation.more = physical;
    allocation.mapping = *std::move(mapping);
    if (const auto context = current_context()) {
        allocation.owner = (*context)->id();
        allocation.context = (*context)->handle();
    }
    memory_map().add(std::move(allocation));
    return CUDA_SUCCESS;
}

// Mappings that fill the range, none of them cut.
Result<std::vector<Allocation>> mappings_in(CUdeviceptr address, std::size_t size) {
    auto found = memory_map().within(address, size);
    std::uint64_t reached = address;
    for (const Allocation &one : found) {
        if (one.kind != MemoryKind::mapped || one.address != reached)
            return refused(CUDA_ERROR_INVALID_VALUE);
        reached = one.end();
    }
    if (size == 0 || reached != address + size)
        return refused(CUDA_ERROR_INVALID_VALUE);
    return found;
}

// Waits for what may use the memory, so that other memory can be put at the address at once.
CUresult unmap(CUdeviceptr address, std::size_t size) {
    auto range = mappings_in(address, size);
    if (!range)
        return range.error();
    // Only the caller's own work: another context's may wait for what the caller does next, as that of ranks
    // which share a device. Who has no context waits for what runs.
    if (const auto current = current_context();
        current && std::ranges::any_of(*range, [viewer = (*current)->viewer()](const Allocation &one) {
            return visible(one, viewer);
        }))
        for (const CompletionPtr &work : (*current)->outstanding())
            work->wait();
    for (Allocation &one : *range) {
        if (!memory_map().remove(one.address, one.id))
            return CUDA_ERROR_INVALID_VALUE;
        drop_everywhere();
        const CompletionPtr gone = one.mapping->gone();
        one.mapping.reset();
        gone->wait();
    }
    return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr address, std::size_t size, const CUmemAccessDesc *list, std::size_t count) {
    if (list == nullptr || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const auto range = mappings_in(address, size);
    if (!range)
        return range.error();
    for (std::size_t at = 0; at < count; ++at) {
        if (list[at].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_NOT_SUPPORTED;
        if (const auto device = platform().device(list[at].location.id); !device)
            return device.error();
    }
    for (const Allocation &one : *range)
        memory_map().change(one.address, [&](Allocation &allocation) {
            for (std::size_t at = 0; at < count; ++at) {
                const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(list[at].location.id);
                const bool read = list[at].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
                const bool write = list[at].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
                allocation.readable = read ? allocation.readable | bit : allocation.readable & ~bit;
                allocation.writable = write ? allocation.writable | bit : allocation.writable & ~bit;
            }
        });
    return CUDA_SUCCESS;
}

CUresult get_access(unsigned long long *out, const CUmemLocation *location, CUdeviceptr address) {
    const auto found = memory_map().holding(address);
    if (out == nullptr || location == nullptr || !found || found->kind != MemoryKind::mapped ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE || !platform().device(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    const auto device = static_cast<unsigned>(location->id);
    *out = (found->writable >> device & 1U) != 0   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : (found->readable >> device & 1U) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult granularity(std::size_t *out, const CUmemAllocationProp *properties) {
    const auto device = device_of(properties);
    if (!device)
        return device.error();
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *out = kGranularity;
    return CUDA_SUCCESS;
}

CUresult get_properties(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle) {
    const auto physical = physical_allocations().find(handle);
    if (out == nullptr || physical == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *out = physical->properties;
    return CUDA_SUCCESS;
}

// The handle lives again, even if the program had released it.
CUresult retain(CUmemGenericAllocationHandle *out, const void *pointer) {
    const auto found = memory_map().holding(std::bit_cast<std::uint64_t>(pointer));
    if (out == nullptr || !found || found->kind != MemoryKind::mapped)
        return CUDA_ERROR_INVALID_VALUE;
    const auto physical = std::static_pointer_cast<PhysicalAllocation>(found->more);
    if (physical->references++ == 0)
        physical_allocations().put(physical->handle, physical);
    *out = physical->handle;
    return CUDA_SUCCESS;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
    return with_driver([&] { return reserve(ptr, size, alignment, addr, flags); });
}
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    return with_driver([&] { return release_addresses(ptr, size); });
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
    return with_driver([&] { return create(handle, size, prop, flags); });
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    return with_driver([&] { return release(handle); });
}
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    return with_driver([&] { return map(ptr, size, offset, handle, flags); });
}
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    return with_driver([&] { return unmap(ptr, size); });
}
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
    return with_driver([&] { return set_access(ptr, size, desc, count); });
}
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr) {
    return with_driver([&] { return get_access(flags, location, ptr); });
}
CUresult cuMemGetAllocationGranularity(size_t *granularity_out, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags /*option*/) {
    return with_driver([&] { return granularity(granularity_out, prop); });
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle) {
    return with_driver([&] { return get_properties(prop, handle); });
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    return with_driver([&] { return retain(handle, addr); });
}

} // extern "C"
