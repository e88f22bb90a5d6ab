// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/pool.hpp"

#include <algorithm>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

void raise(std::atomic<std::uint64_t> &high, std::uint64_t value) {
    std::uint64_t before = high.load(std::memory_order_relaxed);
    while (before < value && !high.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
    }
}

} // namespace

Handles<Pool, CUmemoryPool, HandleKind::pool> &pools() {
    static auto &table = *new Handles<Pool, CUmemoryPool, HandleKind::pool>; // outlives every thread
    return table;
}

Pool::Pool(Device &device, const CUmemPoolProps &properties)
    : device_(device), properties_(properties),
      heap_([&device](std::uint64_t size) { return map_device(size, &device.memory()); }),
      readable_(std::uint64_t{1} << device.ordinal()), writable_(std::uint64_t{1} << device.ordinal()) {
    // Slabs stay until somebody synchronises.
    heap_.set_keep(UINT64_MAX);
}

void Pool::enter(const Context &context, const Block &block, std::uint64_t size) {
    Allocation allocation{};
    allocation.address = block.address;
    allocation.size = size;
    allocation.kind = MemoryKind::pool;
    allocation.owner = context.id();
    allocation.context = context.handle();
    allocation.device = device_.ordinal();
    allocation.pool = handle;
    allocation.readable = readable_;
    allocation.writable = writable_;
    allocation.mapping = block.slab;
    memory_map().add(std::move(allocation));
}

std::optional<Pool::Pending> Pool::take_pending(std::uint64_t size, std::uint64_t stream, bool any_stream) {
    const auto fits = [&](const Pending &entry) {
        return (any_stream || entry.stream == stream) && entry.block.room >= size &&
               (any_stream || entry.block.room <= std::max<std::uint64_t>(2 * size, 4096));
    };
    const auto found = std::ranges::find_if(pending_, fits);
    if (found == pending_.end())
        return std::nullopt;
    auto out = std::move(*found);
    pending_.erase(found);
    return out;
}

Result<CUdeviceptr> Pool::allocate(Stream &stream, std::uint64_t size) {
    if (size == 0)
        return refused(CUDA_ERROR_INVALID_VALUE);
    if (properties_.maxSize != 0 &&
        size > properties_.maxSize - std::min<std::uint64_t>(properties_.maxSize, used_))
        return refused(CUDA_ERROR_OUT_OF_MEMORY);
    CompletionPtr after;
    Block block;
    std::uint64_t visible = size;
    {
        const std::scoped_lock lock(mutex_);
        std::erase_if(pending_, [](const Pending &entry) { return entry.freed->done(); });
        auto again = take_pending(size, stream.id(), false);
        if (!again) {
            auto fresh = heap_.allocate(size);
            if (fresh)
                block = *fresh;
            else if (again = take_pending(size, stream.id(), true); again)
                after = again->freed; // there is no other: this stream waits for the one that frees it
            else
                return refused(fresh.error());
        }
        if (again) {
            block = again->block;
            // Work before the free may still use all that the block was.
            visible = std::max(size, again->block.size);
            block.size = size;
        }
        blocks_[block.address] = block;
        enter(stream.context(), block, visible);
    }
    raise(used_high_, used_ += size);
    raise(reserved_high_, heap_.held());
    if (after != nullptr)
        submit(stream, EmptyOperation{}, {{std::move(after)}, true, nullptr});
    return block.address;
}

CUresult Pool::free(Stream &stream, const Allocation &allocation) {
    const std::scoped_lock lock(mutex_);
    const auto found = blocks_.find(allocation.address);
    if (found == blocks_.end())
        return CUDA_ERROR_INVALID_VALUE;
    Block block = std::move(found->second);
    blocks_.erase(found);
    used_ -= block.size;
    block.size = std::max(block.size, allocation.size);
    FreeOperation operation;
    operation.address = allocation.address;
    operation.id = allocation.id;
    operation.pool = shared_from_this();
    auto freed = submit(stream, std::move(operation));
    pending_.push_back({std::move(block), stream.id(), std::move(freed)});
    return CUDA_SUCCESS;
}

void Pool::free_done(std::uint64_t address, std::uint64_t id) {
    // Given out again in the meantime, it has another id.
    const std::scoped_lock lock(mutex_);
    if (memory_map().remove(address, id)) {
        std::erase_if(pending_, [&](const Pending &entry) { return entry.block.address == address; });
        heap_.free(address);
    }
}

void Pool::free_now(std::uint64_t address) {
    const std::scoped_lock lock(mutex_);
    if (const auto found = blocks_.find(address); found != blocks_.end()) {
        used_ -= found->second.size;
        blocks_.erase(found);
    }
    std::erase_if(pending_, [&](const Pending &entry) { return entry.block.address == address; });
    memory_map().remove(address);
    heap_.free(address);
}

CUresult Pool::get(CUmemPool_attribute attribute, void *value) {
    const auto number = [&](std::uint64_t what) {
        *static_cast<cuuint64_t *>(value) = what;
        return CUDA_SUCCESS;
    };
    const auto flag = [&](int what) {
        *static_cast<int *>(value) = what;
        return CUDA_SUCCESS;
    };
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return flag(follow_events_);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return flag(opportunistic_);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return flag(internal_);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return number(release_threshold);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return number(heap_.held());
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return number(reserved_high_);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return number(used_);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return number(used_high_);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult Pool::set(CUmemPool_attribute attribute, const void *value) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        follow_events_ = *static_cast<const int *>(value) != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        opportunistic_ = *static_cast<const int *>(value) != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        internal_ = *static_cast<const int *>(value) != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        release_threshold = *static_cast<const cuuint64_t *>(value);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: // the high-water marks can only be set back
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*static_cast<const cuuint64_t *>(value) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            used_high_ = used_.load();
        else
            reserved_high_ = heap_.held();
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult Pool::set_access(const CUmemAccessDesc &access) {
    const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(access.location.id);
    // Its own device always has access.
    if (static_cast<unsigned>(access.location.id) == device_.ordinal())
        return access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    const bool read = access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    const bool write = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    readable_ = read ? readable_ | bit : readable_ & ~bit;
    writable_ = write ? writable_ | bit : writable_ & ~bit;
    const std::scoped_lock lock(mutex_);
    for (const auto &[address, block] : blocks_)
        memory_map().change(address, [&](Allocation &allocation) {
            allocation.readable = readable_;
            allocation.writable = writable_;
        });
    return CUDA_SUCCESS;
}

CUmemAccess_flags Pool::access(unsigned device) const {
    if ((writable_ >> device & 1U) != 0)
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return (readable_ >> device & 1U) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

std::shared_ptr<Pool> default_pool(Device &device) {
    auto &state = device.pools();
    const std::scoped_lock lock(state.mutex);
    if (auto pool = pools().find(state.by_default))
        return pool;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(device.ordinal())};
    auto pool = std::make_shared<Pool>(device, properties);
    pool->handle = pools().reserve();
    pools().put(pool->handle, pool);
    state.by_default = pool->handle;
    return pool;
}

std::shared_ptr<Pool> current_pool(Device &device) {
    {
        auto &state = device.pools();
        const std::scoped_lock lock(state.mutex);
        if (auto pool = pools().find(state.current))
            return pool;
    }
    return default_pool(device);
}

void trim_pools(const Device &device) {
    for (const auto &pool : pools().all([&](const Pool &one) { return &one.device() == &device; }))
        pool->trim();
}

} // namespace singularity::softgpu::driver
