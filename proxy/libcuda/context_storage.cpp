// SPDX-License-Identifier: GPL-2.0-or-later
#include "context_storage.hpp"

#include "proxy/libcuda/hooks.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace singularity::libcuda {

namespace {

struct Value {
    void *value = nullptr;
    StorageDestructor destructor = nullptr;
};

// Never destroyed: cudart's exit handlers come after this library's.
struct Storage {
    std::mutex mutex;
    std::map<std::pair<CUcontext, void *>, Value> values;
    // Counts changes: what a thread remembers is good while it has not moved.
    std::atomic<std::uint64_t> generation{1};
};

Storage &storage() {
    static auto *const kStorage = new Storage; // NOLINT(cppcoreguidelines-owning-memory): see above
    return *kStorage;
}

struct Remembered {
    CUcontext context = nullptr;
    void *key = nullptr;
    void *value = nullptr;
    std::uint64_t generation = 0;
};
thread_local Remembered remembered;

} // namespace

void put_context_value(CUcontext context, void *key, void *value, StorageDestructor destructor) {
    auto &all = storage();
    const std::scoped_lock lock(all.mutex);
    all.values[{context, key}] = {value, destructor};
    all.generation.fetch_add(1, std::memory_order_release);
}

bool delete_context_value(CUcontext context, void *key) {
    auto &all = storage();
    const std::scoped_lock lock(all.mutex);
    all.generation.fetch_add(1, std::memory_order_release);
    return all.values.erase({context, key}) != 0;
}

bool get_context_value(CUcontext context, void *key, void **value) {
    auto &all = storage();
    const auto generation = all.generation.load(std::memory_order_acquire);
    if (remembered.generation == generation && remembered.context == context && remembered.key == key) {
        *value = remembered.value;
        return true;
    }
    const std::scoped_lock lock(all.mutex);
    const auto found = all.values.find({context, key});
    if (found == all.values.end())
        return false;
    *value = found->second.value;
    remembered = {context, key, *value, all.generation.load(std::memory_order_relaxed)};
    return true;
}

void destroy_context_values(CUcontext context) {
    auto &all = storage();
    std::vector<std::pair<void *, Value>> ended;
    {
        const std::scoped_lock lock(all.mutex);
        const auto first = all.values.lower_bound({context, nullptr});
        auto last = first;
        for (; last != all.values.end() && last->first.first == context; ++last)
            ended.emplace_back(last->first.second, last->second);
        all.values.erase(first, last);
        all.generation.fetch_add(1, std::memory_order_release);
    }
    for (const auto &[key, value] : ended)
        if (value.destructor != nullptr)
            value.destructor(context, key, value.value);
}

} // namespace singularity::libcuda

void singularity_context_destroyed(CUcontext context) {
    singularity::libcuda::destroy_context_values(context);
}
