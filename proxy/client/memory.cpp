// SPDX-License-Identifier: GPL-2.0-or-later
#include "memory.hpp"

#include "proxy/protocol/memory.hpp"

#include <shared_mutex>
#include <utility>

namespace singularity::client {

namespace {

// Ranges that are looked up often and changed rarely.
template <class Thing>
class SharedRanges {
  public:
    void add(Range range, const Thing &thing) {
        const std::unique_lock lock(lock_);
        ranges_.add(range, thing);
        any_.store(true, std::memory_order_release);
    }
    [[nodiscard]] std::optional<Thing> find(std::uint64_t address) {
        if (!any_.load(std::memory_order_acquire))
            return std::nullopt;
        const std::shared_lock lock(lock_);
        const auto *entry = ranges_.find(address);
        return entry == nullptr ? std::nullopt : std::optional(entry->thing);
    }
    void remove(std::uint64_t address) {
        const std::unique_lock lock(lock_);
        ranges_.remove(address);
        any_.store(!ranges_.empty(), std::memory_order_release);
    }

  private:
    std::shared_mutex lock_;
    std::atomic<bool> any_ = false;
    RangeMap<Thing> ranges_;
};

struct Known {
    SharedRanges<DeviceRange> variables;
    SharedRanges<DeviceRange> mappings;
    std::mutex allocations_lock;
    RangeMap<DeviceAllocation> allocations;
};

Known &known() {
    static auto &instance = *std::make_unique<Known>().release(); // see process()
    return instance;
}

std::atomic<std::uint64_t> next_id = 1;

} // namespace

Location locate(std::uint64_t address) {
    auto &mine = process();
    if (address - mine.window.whole.address < mine.window.whole.size) {
        const auto slice = mine.window.slice_of(address);
        if (slice == 0)
            return {.where = Where::shared_host, .session = nullptr, .wire = address};
        auto *const session = mine.session(static_cast<int>(slice) - 1);
        return {.where = session == nullptr ? Where::pageable : Where::device,
                .session = session,
                .wire = address};
    }
    if (const auto host = find_host(address))
        return {.where = Where::shared_host,
                .session = nullptr,
                .wire = host->wire + (address - host->range.address)};
    if (const auto variable = known().variables.find(address))
        return {.where = Where::device, .session = variable->session, .wire = address};
    return {.where = Where::pageable, .session = nullptr, .wire = address};
}

void note_variable(const DeviceRange &variable) { known().variables.add(variable.range, variable); }
std::optional<DeviceRange> find_variable(std::uint64_t address) { return known().variables.find(address); }
void note_mapping(const DeviceRange &mapping) { known().mappings.add(mapping.range, mapping); }
void forget_mapping(std::uint64_t address) { known().mappings.remove(address); }
std::optional<DeviceRange> find_mapping(std::uint64_t address) { return known().mappings.find(address); }

CUresult allocate_device(Context &context, std::uint64_t size, std::uint64_t pool, std::uint64_t &address) {
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const auto allocated = context.memory.allocate(size);
    if (!allocated)
        return static_cast<CUresult>(allocated.error());
    address = *allocated;
    const std::scoped_lock lock(known().allocations_lock);
    const Range range{.address = address, .size = size};
    known().allocations.add(range, {.range = range,
                                    .context = &context,
                                    .id = next_id.fetch_add(1),
                                    .pool = pool,
                                    .shared = Shared::no});
    return CUDA_SUCCESS;
}

bool release_device(std::uint64_t address) {
    Context *context = nullptr;
    bool exported = false;
    {
        const std::scoped_lock lock(known().allocations_lock);
        const auto *found = known().allocations.find_exact(address);
        if (found == nullptr || found->thing.shared == Shared::opened)
            return false;
        context = found->thing.context;
        exported = found->thing.shared == Shared::exported;
        known().allocations.remove(address);
    }
    if (exported)
        context->slabs.end_export(address);
    return context->memory.release(address).has_value();
}

std::optional<DeviceAllocation> find_device(std::uint64_t address) {
    const std::scoped_lock lock(known().allocations_lock);
    const auto *found = known().allocations.find(address);
    return found == nullptr ? std::nullopt : std::optional(found->thing);
}

bool export_device(std::uint64_t address) {
    const std::scoped_lock lock(known().allocations_lock);
    auto *found = known().allocations.find_exact(address);
    if (found == nullptr)
        return false;
    found->thing.shared = Shared::exported;
    return true;
}

void note_opened(const Range &range, Context &context) {
    const std::scoped_lock lock(known().allocations_lock);
    known().allocations.add(range, {.range = range,
                                    .context = &context,
                                    .id = next_id.fetch_add(1),
                                    .pool = 0,
                                    .shared = Shared::opened});
}

void forget_opened_device(std::uint64_t address) {
    const std::scoped_lock lock(known().allocations_lock);
    known().allocations.remove(address);
}

void rename_device(std::uint64_t address, std::uint64_t size, std::uint64_t pool) {
    std::unique_lock lock(known().allocations_lock);
    auto *found = known().allocations.find_exact(address);
    if (found == nullptr)
        return;
    auto allocation = found->thing;
    const bool exported = std::exchange(allocation.shared, Shared::no) == Shared::exported;
    allocation.range.size = size;
    allocation.pool = pool;
    allocation.id = next_id.fetch_add(1);
    known().allocations.add(allocation.range, allocation);
    lock.unlock();
    if (exported)
        allocation.context->slabs.end_export(address);
}

std::uint64_t pool_bytes(std::uint64_t pool) {
    const std::scoped_lock lock(known().allocations_lock);
    std::uint64_t sum = 0;
    for (const auto &[address, entry] : known().allocations)
        if (entry.thing.pool == pool)
            sum += entry.range.size;
    return sum;
}

void forget_device_memory(const Context &context) {
    const std::scoped_lock lock(known().allocations_lock);
    known().allocations.remove_if(
        [&](const DeviceAllocation &allocation) { return allocation.context == &context; });
}

std::vector<channel::AddressRange> device_memory_of(const Session &session) {
    // What lies between two allocations that share a page belongs to nobody: it may be in the image.
    constexpr std::uint64_t kGap = 4096;
    std::vector<channel::AddressRange> found;
    const std::scoped_lock lock(known().allocations_lock);
    for (const auto &[address, entry] : known().allocations) {
        const auto &allocation = entry.thing;
        // Memory that was freed in stream order has no content any more: the device is done.
        if (allocation.context->session != &session || allocation.pool == kFreedPool)
            continue;
        const auto &range = allocation.range;
        if (!found.empty() && range.address - (found.back().address + found.back().size) < kGap)
            found.back().size = range.address + range.size - found.back().address;
        else
            found.push_back({.address = range.address, .size = range.size});
    }
    return found;
}

bool is_allocated(const Location &location, std::uint64_t size) {
    if (location.where == Where::pageable || size == 0)
        return true;
    auto at = location.wire;
    const auto end = at + size;
    if (end < at)
        return false;
    if (location.where == Where::shared_host) {
        const auto host = find_host_wire(at);
        return host && end <= host->end();
    }
    if (const auto allocation = find_device(at))
        return end <= allocation->range.end();
    if (const auto variable = find_variable(at))
        return end <= variable->range.end();
    // Mappings side by side are one piece of memory.
    while (at < end) {
        const auto mapping = find_mapping(at);
        if (!mapping)
            return false;
        at = mapping->range.end();
    }
    return true;
}

Context *owner_of(std::uint64_t address) {
    if (const auto allocation = find_device(address))
        return allocation->context;
    if (const auto variable = find_variable(address))
        return variable->context;
    const auto mapping = find_mapping(address);
    return mapping ? mapping->context : nullptr;
}

CUresult route_to(Session &session, Route &route, Context *owner) {
    for (auto *const context : {current_context, owner, session.primary}) {
        if (context == nullptr || context->session != &session || !context->alive)
            continue;
        route = {.session = &session, .context = context};
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult synchronize_context(const Route &route) {
    driver_api::CtxSynchronizeRequest request;
    const Encoded encoded([&](std::span<std::byte> storage) { return encode(request, storage); });
    const Exchange exchange(route, encoded.bytes(), kReplyOverhead);
    if (exchange.failure() != CUDA_SUCCESS)
        return exchange.failure();
    const auto reply = driver_api::decode_CtxSynchronizeReply(request, exchange.reply());
    if (!reply)
        return broken(route, reply.error());
    return noted(route.context, static_cast<CUresult>(reply->driver_result));
}

CUresult synchronize_all() {
    CUresult first = CUDA_SUCCESS;
    for (const auto &session : process().sessions) {
        Route route;
        if (route_to(*session, route) != CUDA_SUCCESS)
            continue;
        if (const auto result = synchronize_context(route); result != CUDA_SUCCESS && first == CUDA_SUCCESS)
            first = result;
    }
    return first;
}

} // namespace singularity::client
