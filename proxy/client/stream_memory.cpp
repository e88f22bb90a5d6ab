// SPDX-License-Identifier: GPL-2.0-or-later
#include "stream_memory.hpp"

#include "copy.hpp"
#include "graph.hpp"
#include "graph_memory.hpp"
#include "pool.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace singularity::client {

namespace {

constexpr std::size_t kMostFreed = 256; // of all contexts, before a stream is waited for

constexpr std::uint64_t kNoStream = 0; // every stream may use it

struct Freed {
    Context *context;
    std::uint64_t stream; // that still orders its reuse, or kNoStream
    std::uint64_t address;
    std::uint64_t size; // that it can hold
    std::uint64_t pool;
};

struct FreedList {
    std::mutex lock;
    std::atomic<std::size_t> count = 0;
    std::vector<Freed> entries;

    // With the lock held.
    template <class Condition>
    std::vector<Freed> take(Condition condition) {
        std::vector<Freed> out;
        std::erase_if(entries, [&](const Freed &entry) {
            if (!condition(entry))
                return false;
            out.push_back(entry);
            return true;
        });
        count = entries.size();
        return out;
    }
};

FreedList &freed() {
    static auto &instance = *std::make_unique<FreedList>().release(); // see process()
    return instance;
}

// Without the lock: it may go to the daemon.
void give_back(const std::vector<Freed> &entries) {
    for (const auto &entry : entries)
        static_cast<void>(release_device(entry.address));
}

std::uint64_t threshold_of(std::uint64_t pool) {
    const auto *const object = find_as<PoolObject>(driver_api::kHandlePool, pool);
    return object == nullptr ? 0 : object->release_threshold.load();
}

// With the lock held: what a pool has too much of, and may give back.
std::vector<Freed> surplus(FreedList &list, std::uint64_t pool, std::uint64_t keep) {
    std::uint64_t reserved = pool_bytes(pool);
    for (const auto &entry : list.entries)
        if (entry.pool == pool)
            reserved += entry.size;
    return list.take([&](const Freed &entry) {
        if (entry.pool != pool || entry.stream != kNoStream || reserved <= keep)
            return false;
        reserved -= std::min(reserved, entry.size);
        return true;
    });
}

// The smallest that is large enough and not much too large.
std::optional<Freed> take_fitting(const Context &context, std::uint64_t stream, std::uint64_t size,
                                  std::uint64_t pool) {
    auto &list = freed();
    if (list.count.load(std::memory_order_relaxed) == 0)
        return std::nullopt;
    const std::scoped_lock guard(list.lock);
    auto best = list.entries.end();
    for (auto entry = list.entries.begin(); entry != list.entries.end(); ++entry)
        if (entry->context == &context && entry->pool == pool &&
            (entry->stream == stream || entry->stream == kNoStream) && entry->size >= size &&
            entry->size / 2 <= size && (best == list.entries.end() || entry->size < best->size))
            best = entry;
    if (best == list.entries.end())
        return std::nullopt;
    const auto found = *best;
    list.entries.erase(best);
    list.count = list.entries.size();
    return found;
}

} // namespace

CUresult allocate_in_stream(const Route &route, std::uint64_t stream, std::uint64_t size, std::uint64_t pool,
                            std::uint64_t &address) {
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    bool capturing = false;
    if (const auto bad = is_capturing(route, stream, capturing); bad != CUDA_SUCCESS)
        return bad;
    auto &context = *route.context;
    if (!capturing)
        if (const auto found = take_fitting(context, stream, size, pool)) {
            address = found->address;
            rename_device(address, size, pool);
            return CUDA_SUCCESS;
        }
    const auto result = allocate_device(context, size, pool, address);
    if (capturing && result == CUDA_SUCCESS) {
        const OnContext scope(context);
        if (const auto graph = captured_graph(std::bit_cast<CUstream>(stream)); graph != 0)
            graph_allocates(graph, context, address);
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY || capturing)
        return result;
    if (const auto bad = synchronize_context(route); bad != CUDA_SUCCESS)
        return bad;
    release_idle(context);
    return allocate_device(context, size, pool, address);
}

CUresult free_in_stream(const Route &route, std::uint64_t stream, std::uint64_t address) {
    if (address == 0)
        return CUDA_SUCCESS;
    const auto allocation = find_device(address);
    if (!allocation || allocation->range.address != address || allocation->shared == Shared::opened)
        return CUDA_ERROR_INVALID_VALUE;
    bool capturing = false;
    if (const auto bad = is_capturing(route, stream, capturing); bad != CUDA_SUCCESS)
        return bad;
    // The graph may run at any time: its memory stays until the context ends.
    if (capturing) {
        const OnContext scope(*route.context);
        if (graph_memory_at(address))
            if (const auto graph = captured_graph(std::bit_cast<CUstream>(stream)); graph != 0)
                graph_frees(graph, address);
        return CUDA_SUCCESS;
    }
    if (graph_memory_at(address))
        return end_graph_memory(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (allocation->context != route.context) {
        if (const auto bad = synchronize_stream(route, stream); bad != CUDA_SUCCESS)
            return bad;
        static_cast<void>(release_device(address));
        return CUDA_SUCCESS;
    }
    auto &list = freed();
    bool full = false;
    {
        const std::scoped_lock guard(list.lock);
        if (std::ranges::find(list.entries, address, &Freed::address) != list.entries.end())
            return CUDA_ERROR_INVALID_VALUE;
        list.entries.push_back({route.context, stream, address, allocation->range.size, allocation->pool});
        list.count = list.entries.size();
        full = list.entries.size() > kMostFreed;
    }
    rename_device(address, allocation->range.size, kFreedPool);
    if (!full)
        return CUDA_SUCCESS;
    const auto result = synchronize_stream(route, stream);
    if (result == CUDA_SUCCESS)
        stream_is_done(*route.context, stream);
    return result;
}

void stream_is_done(Context &context, std::uint64_t stream) {
    auto &list = freed();
    if (list.count.load(std::memory_order_acquire) == 0)
        return;
    std::vector<Freed> out;
    {
        const std::scoped_lock guard(list.lock);
        std::vector<std::uint64_t> pools;
        for (auto &entry : list.entries)
            if (entry.context == &context && (stream == 0 || entry.stream == stream)) {
                entry.stream = kNoStream;
                if (std::ranges::find(pools, entry.pool) == pools.end())
                    pools.push_back(entry.pool);
            }
        for (const auto pool : pools)
            for (const auto &entry : surplus(list, pool, threshold_of(pool)))
                out.push_back(entry);
    }
    give_back(out);
}

void release_idle(Context &context) {
    auto &list = freed();
    std::vector<Freed> out;
    {
        const std::scoped_lock guard(list.lock);
        out = list.take([&](const Freed &entry) { return entry.context == &context; });
    }
    give_back(out);
}

void trim_pool(std::uint64_t pool, std::uint64_t bytes_to_keep) {
    auto &list = freed();
    std::vector<Freed> out;
    {
        const std::scoped_lock guard(list.lock);
        out = surplus(list, pool, bytes_to_keep);
    }
    give_back(out);
}

void forget_freed(const Context &context) {
    auto &list = freed();
    const std::scoped_lock guard(list.lock);
    static_cast<void>(list.take([&](const Freed &entry) { return entry.context == &context; }));
}

std::uint64_t bytes_to_reuse(std::uint64_t pool) {
    auto &list = freed();
    const std::scoped_lock guard(list.lock);
    std::uint64_t sum = 0;
    for (const auto &entry : list.entries)
        if (entry.pool == pool)
            sum += entry.size;
    return sum;
}

bool anything_to_reuse(const Context &context) {
    auto &list = freed();
    const std::scoped_lock guard(list.lock);
    return std::ranges::any_of(list.entries, [&](const Freed &entry) { return entry.context == &context; });
}

} // namespace singularity::client
