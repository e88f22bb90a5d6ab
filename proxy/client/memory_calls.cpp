// SPDX-License-Identifier: GPL-2.0-or-later
// cuMem*: device memory, pinned and managed host memory.
#include "capture_modes.hpp"
#include "copy.hpp"
#include "graph_memory.hpp"
#include "memory.hpp"
#include "proxy/protocol/memory.hpp"
#include "stream_memory.hpp"

using namespace singularity;
using namespace singularity::client;

namespace {

constexpr std::uint64_t kPitchUnit = 512;

CUresult free_device(CUdeviceptr address) {
    const auto allocation = find_device(address);
    if (!allocation || allocation->range.address != address || allocation->pool == kFreedPool ||
        allocation->shared == Shared::opened)
        return CUDA_ERROR_INVALID_VALUE;
    const Route route{.session = allocation->context->session, .context = allocation->context};
    // What still uses it must be over before it is used again. An error of that work is told, and the memory
    // freed.
    const auto of_graph = graph_memory_at(address);
    if (of_graph && !*of_graph)
        return CUDA_ERROR_INVALID_VALUE;
    const auto result = synchronize_context(route);
    if (result == CUDA_SUCCESS)
        stream_is_done(*route.context, 0);
    if (of_graph)
        return end_graph_memory(address) || result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    if (!release_device(address))
        return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
    return result;
}

CUresult host_of(const void *pointer, HostAllocation &allocation) {
    const auto found = find_host(std::bit_cast<std::uint64_t>(pointer));
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    allocation = *found;
    return CUDA_SUCCESS;
}

} // namespace

extern "C" {

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (free == nullptr || total == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    return ask(Route{.session = context->session, .context = context},
               protocol::Message<protocol::MemoryInfo>{}, 0, [&](const auto &reply) {
                   *free = reply.fixed.free + context->memory.free_bytes();
                   *total = reply.fixed.total;
               });
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (dptr == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    std::uint64_t address = 0;
    auto result = allocate_device(*context, bytesize, 0, address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && anything_to_reuse(*context)) {
        if (const auto bad = synchronize_context({.session = context->session, .context = context});
            bad != CUDA_SUCCESS)
            return bad;
        release_idle(*context);
        result = allocate_device(*context, bytesize, 0, address);
    }
    if (result == CUDA_SUCCESS)
        *dptr = address;
    return result;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (WidthInBytes > (std::uint64_t{1} << 46) / Height)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const auto pitch = round_up(WidthInBytes, kPitchUnit);
    const auto result = cuMemAlloc_v2(dptr, pitch * Height);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (dptr == 0)
        return CUDA_SUCCESS;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    if (const auto location = locate(dptr); location.where == Where::shared_host)
        return release_host(dptr, HostKind::managed);
    return free_device(dptr);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    if (pbase == nullptr && psize == nullptr) // nothing is asked, so nobody looks at the address
        return CUDA_SUCCESS;
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    Range range;
    if (const auto allocation = find_device(dptr)) {
        range = allocation->range;
    } else if (const auto mapping = find_mapping(dptr)) {
        range = mapping->range;
    } else if (const auto host = find_host(dptr)) {
        range = host->range;
    } else if (const auto variable = find_variable(dptr)) {
        range = variable->range;
    } else {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (pbase != nullptr)
        *pbase = range.address;
    if (psize != nullptr)
        *psize = range.size;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (dptr == nullptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    void *memory = nullptr;
    const auto result = allocate_host(bytesize, HostKind::managed, flags, *context, memory);
    if (result == CUDA_SUCCESS)
        *dptr = std::bit_cast<CUdeviceptr>(memory);
    return result;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) { return cuMemHostAlloc(pp, bytesize, 0); }

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags) {
    constexpr unsigned kKnown =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (pp == nullptr || (Flags & ~kKnown) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    return allocate_host(bytesize, HostKind::pinned, Flags, *context, *pp);
}

CUresult cuMemFreeHost(void *p) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (p == nullptr)
        return CUDA_SUCCESS;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    return release_host(std::bit_cast<std::uint64_t>(p), HostKind::pinned);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    HostAllocation host;
    if (pdptr == nullptr || Flags != 0 || host_of(p, host) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    *pdptr = host.wire + (std::bit_cast<std::uint64_t>(p) - host.range.address);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    HostAllocation host;
    if (pFlags == nullptr || host_of(p, host) != CUDA_SUCCESS || host.kind != HostKind::pinned)
        return CUDA_ERROR_INVALID_VALUE;
    // With unified addressing all such memory is portable and mapped (CUDA driver API, "Unified addressing").
    *pFlags = host.flags | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE;
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
    constexpr unsigned kKnown =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if ((Flags & ~kKnown) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    return register_host(p, bytesize, Flags, *context);
}
CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags) {
    return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void *p) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (p == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    return unregister_host(p);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    return cuMemAllocFromPoolAsync(dptr, bytesize, nullptr, hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    std::uint64_t stream = 0;
    Route route;
    if (const auto bad = stream_route(hStream, stream, route); bad != CUDA_SUCCESS)
        return bad;
    return free_in_stream(route, stream, dptr);
}

} // extern "C"
