// SPDX-License-Identifier: GPL-2.0-or-later
// Memory pools and stream-ordered allocation.
#include "driver/api/entry.hpp"
#include "driver/capture.hpp"
#include "driver/graph.hpp"
#include "driver/pool.hpp"

#include <utility>

namespace singularity::softgpu::driver {

namespace {

Result<Device *> device_of(const CUmemLocation *location, CUmemAllocationType type) {
    if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return refused(CUDA_ERROR_INVALID_VALUE);
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return refused(CUDA_ERROR_NOT_SUPPORTED);
    return platform().device(location->id);
}

CUresult create(CUmemoryPool *out, const CUmemPoolProps *properties) {
    if (out == nullptr || properties == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    const auto device = device_of(&properties->location, properties->allocType);
    if (!device)
        return device.error();
    auto pool = std::make_shared<Pool>(**device, *properties);
    pool->handle = pools().reserve();
    pools().put(pool->handle, pool);
    *out = pool->handle;
    return CUDA_SUCCESS;
}

CUresult destroy(CUmemoryPool handle) {
    const auto pool = pools().find(handle);
    if (pool == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    auto &state = pool->device().pools();
    const std::scoped_lock lock(state.mutex);
    if (state.by_default == handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (state.current == handle)
        state.current = nullptr;
    // What was allocated of it stays until it is freed: such memory holds its slab, and the stream's frees
    // hold the pool.
    pools().take(handle);
    return CUDA_SUCCESS;
}

CUresult use(Device &device, CUmemoryPool handle) {
    const auto pool = pools().find(handle);
    if (pool == nullptr || &pool->device() != &device)
        return CUDA_ERROR_INVALID_VALUE;
    const std::scoped_lock lock(device.pools().mutex);
    device.pools().current = handle;
    return CUDA_SUCCESS;
}

CUresult give_pool(CUmemoryPool *out, const std::shared_ptr<Pool> &pool) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *out = pool->handle;
    return CUDA_SUCCESS;
}

template <class Work>
CUresult with_pool(CUmemoryPool handle, Work &&work) {
    return with_driver([&] {
        const auto pool = pools().find(handle);
        return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : std::forward<Work>(work)(*pool);
    });
}

CUresult set_access(Pool &pool, const CUmemAccessDesc *list, std::size_t count) {
    if (list == nullptr || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t at = 0; at < count; ++at) {
        if (list[at].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !platform().device(list[at].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        if (const CUresult one = pool.set_access(list[at]); one != CUDA_SUCCESS)
            return one;
    }
    return CUDA_SUCCESS;
}

CUresult get_access(const Pool &pool, CUmemAccess_flags *out, const CUmemLocation *location) {
    if (out == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !platform().device(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    *out = pool.access(static_cast<unsigned>(location->id));
    return CUDA_SUCCESS;
}

CUresult allocate(Context &context, Stream &stream, CUdeviceptr *out, std::size_t size, Pool &pool) {
    if (out == nullptr || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    parameters.poolProps = pool.properties();
    parameters.bytesize = size;
    if (const auto captured = capture_allocation(context, stream, parameters))
        return store(out, *captured);
    return store(out, pool.allocate(stream, size));
}

CUresult free(Context &context, Stream &stream, CUdeviceptr address) {
    FreeOperation operation;
    operation.address = address;
    if (const auto captured = capture(context, stream, operation, true))
        return *captured;
    if (graph_memory_at(address)) {
        if (!end_graph_memory(address))
            return CUDA_ERROR_INVALID_VALUE;
        submit(stream, std::move(operation));
        return CUDA_SUCCESS;
    }
    const auto found = memory_map().at(address);
    if (!found || found->internal)
        return CUDA_ERROR_INVALID_VALUE;
    if (found->kind == MemoryKind::pool) {
        if (const auto pool = pools().find(found->pool))
            return pool->free(stream, *found);
        submit(stream, std::move(operation)); // of a pool that is destroyed
        return CUDA_SUCCESS;
    }
    if (found->kind != MemoryKind::device)
        return CUDA_ERROR_INVALID_VALUE;
    // Memory of cuMemAlloc may be freed in stream order as well: everything before in the stream is done
    // first.
    if (const CUresult waited = wait_for(stream.context(), stream.context().outstanding(stream));
        waited != CUDA_SUCCESS)
        return waited;
    return cuMemFree_v2(address);
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
    return with_device(dev, [&](Device &device) { return give_pool(pool_out, default_pool(device)); });
}
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    return with_device(dev, [&](Device &device) { return give_pool(pool, current_pool(device)); });
}
CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    return with_device(dev, [&](Device &device) { return use(device, pool); });
}
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type) {
    return with_driver([&] {
        const auto device = device_of(location, type);
        return device ? give_pool(pool_out, default_pool(**device)) : device.error();
    });
}
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    return with_driver([&] {
        const auto device = device_of(location, type);
        return device ? give_pool(pool, current_pool(**device)) : device.error();
    });
}
CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    return with_driver([&] {
        const auto device = device_of(location, type);
        return device ? use(**device, pool) : device.error();
    });
}
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
    return with_driver([&] { return create(pool, poolProps); });
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    return with_driver([&] { return destroy(pool); });
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    return with_pool(pool, [&](Pool &one) {
        one.trim_to(minBytesToKeep);
        drop_everywhere();
        return CUDA_SUCCESS;
    });
}
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    return with_pool(
        pool, [&](Pool &one) { return value == nullptr ? CUDA_ERROR_INVALID_VALUE : one.set(attr, value); });
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    return with_pool(
        pool, [&](Pool &one) { return value == nullptr ? CUDA_ERROR_INVALID_VALUE : one.get(attr, value); });
}
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    return with_pool(pool, [&](Pool &one) { return set_access(one, map, count); });
}
CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location) {
    return with_pool(memPool, [&](Pool &one) { return get_access(one, flags, location); });
}
CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    return with_stream(hStream, [&](Context &context, Stream &stream) {
        return allocate(context, stream, dptr, bytesize, *current_pool(stream.context().device()));
    });
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    return with_stream(hStream, [&](Context &context, Stream &stream) {
        const auto from = pools().find(pool);
        return from == nullptr ? CUDA_ERROR_INVALID_VALUE : allocate(context, stream, dptr, bytesize, *from);
    });
}
CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    return with_stream(hStream,
                       [&](Context &context, Stream &stream) { return free(context, stream, dptr); });
}

} // extern "C"
