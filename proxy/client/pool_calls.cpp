// SPDX-License-Identifier: GPL-2.0-or-later
// Memory pools. Allocation is the client's, and so are they: a pool is a name with attributes and counts.
#include "copy.hpp"
#include "pool.hpp"
#include "stream_memory.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

using namespace singularity;
using namespace singularity::client;

namespace {

// By device: the default one, and the current one.
struct DevicePools {
    std::once_flag made;
    std::uint64_t standard = 0;
    std::atomic<std::uint64_t> current = 0;
};

std::uint64_t new_pool(Session &session) {
    auto &table = process().table(driver_api::kHandlePool);
    const auto handle = table.reserve();
    auto pool = std::make_unique<PoolObject>();
    pool->session = &session;
    table.add(handle, std::move(pool));
    return handle;
}

constexpr std::size_t kMostDevices = 64;

DevicePools &pools_of(Session &session) {
    static auto &all = *std::make_unique<std::array<DevicePools, kMostDevices>>().release(); // see process()
    auto &pools = all[static_cast<std::size_t>(session.ordinal()) % kMostDevices];
    std::call_once(pools.made, [&] {
        pools.standard = new_pool(session);
        pools.current = pools.standard;
    });
    return pools;
}

CUresult pool_session_of(CUdevice device, Session *&session) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    session = process().session(device);
    return session == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult pool_session_of(const CUmemLocation *location, Session *&session) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (location == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED; // pools of host memory
    return pool_session_of(location->id, session);
}

CUresult pool_of(CUmemoryPool value, PoolObject *&pool) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    pool = find_as<PoolObject>(driver_api::kHandlePool, std::bit_cast<std::uint64_t>(value));
    return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

template <class T>
T read(const void *value) {
    T out{};
    std::memcpy(&out, value, sizeof(out));
    return out;
}

template <class T>
CUresult give_value(void *to, T value) {
    std::memcpy(to, &value, sizeof(value));
    return CUDA_SUCCESS;
}

struct Usage {
    std::uint64_t used = 0;
    std::uint64_t reserved = 0;
};

Usage usage_of(PoolObject &pool) {
    Usage usage;
    usage.used = pool_bytes(pool.handle);
    usage.reserved = usage.used + bytes_to_reuse(pool.handle);
    pool.used_high = std::max(pool.used_high, usage.used);
    pool.reserved_high = std::max(pool.reserved_high, usage.reserved);
    return usage;
}

} // namespace

extern "C" {

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (pool == nullptr || poolProps == nullptr || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED; // memory of other processes
    Session *session = nullptr;
    if (const auto bad = pool_session_of(&poolProps->location, session); bad != CUDA_SUCCESS)
        return bad;
    *pool = std::bit_cast<CUmemoryPool>(new_pool(*session));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    PoolObject *object = nullptr;
    if (const auto bad = pool_of(pool, object); bad != CUDA_SUCCESS)
        return bad;
    auto &pools = pools_of(*object->session);
    if (object->handle == pools.standard)
        return CUDA_ERROR_INVALID_VALUE;
    auto handle = object->handle;
    pools.current.compare_exchange_strong(handle, pools.standard);
    trim_pool(object->handle, 0);
    gone(driver_api::kHandlePool, object->handle);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    PoolObject *object = nullptr;
    if (const auto bad = pool_of(pool, object); bad != CUDA_SUCCESS)
        return bad;
    trim_pool(object->handle, minBytesToKeep);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    PoolObject *object = nullptr;
    if (const auto bad = pool_of(pool, object); bad != CUDA_SUCCESS)
        return bad;
    if (value == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const std::scoped_lock lock(object->lock);
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        object->reuse[static_cast<std::size_t>(attr) - 1] = read<int>(value);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        object->release_threshold = read<cuuint64_t>(value);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (read<cuuint64_t>(value) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? object->used_high : object->reserved_high) = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    PoolObject *object = nullptr;
    if (const auto bad = pool_of(pool, object); bad != CUDA_SUCCESS)
        return bad;
    if (value == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const std::scoped_lock lock(object->lock);
    const auto usage = usage_of(*object);
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return give_value(value, object->reuse[static_cast<std::size_t>(attr) - 1]);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return give_value(value, cuuint64_t{object->release_threshold.load()});
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return give_value(value, cuuint64_t{usage.reserved});
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return give_value(value, cuuint64_t{object->reserved_high});
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return give_value(value, cuuint64_t{usage.used});
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return give_value(value, cuuint64_t{object->used_high});
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    PoolObject *object = nullptr;
    if (const auto bad = pool_of(pool, object); bad != CUDA_SUCCESS)
        return bad;
    if (map == nullptr || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t index = 0; index < count; ++index) {
        Session *session = nullptr;
        if (const auto bad = pool_session_of(&map[index].location, session); bad != CUDA_SUCCESS)
            return bad;
        const bool own = session == object->session;
        if (own && map[index].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
        if (!own && map[index].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            return CUDA_ERROR_INVALID_DEVICE; // no device reaches another's memory
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location) {
    PoolObject *object = nullptr;
    if (const auto bad = pool_of(memPool, object); bad != CUDA_SUCCESS)
        return bad;
    Session *session = nullptr;
    if (const auto bad = pool_session_of(location, session); bad != CUDA_SUCCESS)
        return bad;
    if (flags == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = session == object->session ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = pool_session_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (pool_out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *pool_out = std::bit_cast<CUmemoryPool>(pools_of(*session).standard);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = pool_session_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (pool == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *pool = std::bit_cast<CUmemoryPool>(pools_of(*session).current.load());
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    Session *session = nullptr;
    if (const auto bad = pool_session_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    PoolObject *object = nullptr;
    if (const auto bad = pool_of(pool, object); bad != CUDA_SUCCESS)
        return bad;
    if (object->session != session)
        return CUDA_ERROR_INVALID_DEVICE;
    pools_of(*session).current = object->handle;
    return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type) {
    Session *session = nullptr;
    if (const auto bad = pool_session_of(location, session); bad != CUDA_SUCCESS)
        return bad;
    return type == CU_MEM_ALLOCATION_TYPE_PINNED ? cuDeviceGetDefaultMemPool(pool_out, session->ordinal())
                                                 : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    Session *session = nullptr;
    if (const auto bad = pool_session_of(location, session); bad != CUDA_SUCCESS)
        return bad;
    return type == CU_MEM_ALLOCATION_TYPE_PINNED ? cuDeviceGetMemPool(pool, session->ordinal())
                                                 : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    Session *session = nullptr;
    if (const auto bad = pool_session_of(location, session); bad != CUDA_SUCCESS)
        return bad;
    return type == CU_MEM_ALLOCATION_TYPE_PINNED ? cuDeviceSetMemPool(session->ordinal(), pool)
                                                 : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    std::uint64_t stream = 0;
    Route route;
    if (const auto bad = stream_route(hStream, stream, route); bad != CUDA_SUCCESS)
        return bad;
    if (dptr == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    auto handle = std::bit_cast<std::uint64_t>(pool);
    if (pool == nullptr)
        handle = pools_of(*route.session).current;
    else if (const auto *object = find_object(driver_api::kHandlePool, handle);
             object == nullptr || object->session != route.session)
        return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t address = 0;
    const auto result = allocate_in_stream(route, stream, bytesize, handle, address);
    if (result == CUDA_SUCCESS)
        *dptr = address;
    return result;
}

} // extern "C"
