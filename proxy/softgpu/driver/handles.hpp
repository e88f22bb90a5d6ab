// SPDX-License-Identifier: GPL-2.0-or-later
// Handles: what programs hold instead of objects. A handle is a number that is never used again and never
// followed, so a wrong, ended or invented one is found out whatever it is.
#pragma once

#include "driver/result.hpp"

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace singularity::softgpu::driver {

enum class HandleKind : std::uint8_t {
    context = 1,
    module,
    library,
    kernel,
    function,
    stream,
    event,
    graph,
    graph_node,
    graph_exec,
    pool,
    allocation,
    user_object,
    link,
    array,
    mipmapped_array,
};

inline constexpr std::uint64_t kHandleBase = 0x0D00'0000'0000;

// Of a context, a stream or a capture: no other has it or had it.
[[nodiscard]] inline std::uint64_t next_id() {
    static constinit std::atomic<std::uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
}

template <class T, class Handle, HandleKind kind>
class Handles {
  public:
    [[nodiscard]] Handle reserve() {
        const std::uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
        return handle_of(kHandleBase | (std::uint64_t{std::to_underlying(kind)} << 36U) | (index << 4U));
    }
    void put(Handle handle, std::shared_ptr<T> object) {
        const std::unique_lock lock(mutex_);
        objects_[number_of(handle)] = std::move(object);
    }
    [[nodiscard]] Handle add(std::shared_ptr<T> object) {
        const Handle handle = reserve();
        put(handle, std::move(object));
        return handle;
    }
    // nullptr: there is none.
    [[nodiscard]] std::shared_ptr<T> find(Handle handle) const {
        const std::shared_lock lock(mutex_);
        const auto found = objects_.find(number_of(handle));
        return found == objects_.end() ? nullptr : found->second;
    }
    [[nodiscard]] Result<std::shared_ptr<T>> get(Handle handle,
                                                 CUresult otherwise = CUDA_ERROR_INVALID_HANDLE) const {
        auto found = find(handle);
        if (found == nullptr)
            return refused(otherwise);
        return found;
    }
    // What was there, for the caller to end without the lock.
    std::shared_ptr<T> take(Handle handle) {
        const std::unique_lock lock(mutex_);
        const auto found = objects_.find(number_of(handle));
        if (found == objects_.end())
            return nullptr;
        auto object = std::move(found->second);
        objects_.erase(found);
        return object;
    }
    template <class Predicate>
    [[nodiscard]] std::vector<std::shared_ptr<T>> all(Predicate &&wanted) const {
        std::vector<std::shared_ptr<T>> out;
        const std::shared_lock lock(mutex_);
        for (const auto &[handle, object] : objects_)
            if (wanted(*object))
                out.push_back(object);
        return out;
    }
    [[nodiscard]] std::size_t size() const {
        const std::shared_lock lock(mutex_);
        return objects_.size();
    }

  private:
    static std::uint64_t number_of(Handle handle) {
        if constexpr (std::is_pointer_v<Handle>)
            return std::bit_cast<std::uint64_t>(handle);
        else
            return handle;
    }
    static Handle handle_of(std::uint64_t number) {
        if constexpr (std::is_pointer_v<Handle>)
            return std::bit_cast<Handle>(number);
        else
            return number;
    }

    std::atomic<std::uint64_t> next_{1};
    mutable std::shared_mutex mutex_;
    std::unordered_map<std::uint64_t, std::shared_ptr<T>> objects_;
};

} // namespace singularity::softgpu::driver
