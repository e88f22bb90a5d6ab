// SPDX-License-Identifier: GPL-2.0-or-later
#include "handles.hpp"

#include <utility>

namespace singularity::client {

namespace {

constexpr std::uint32_t field(std::uint32_t index, unsigned shift, unsigned bits) {
    return (index >> shift) & ((1U << bits) - 1);
}

} // namespace

std::uint64_t HandleTable::reserve() {
    const auto index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= kChosenByDaemon) {
        next_.store(kChosenByDaemon, std::memory_order_relaxed);
        return 0;
    }
    return handle_value(kind_, index);
}

HandleTable::~HandleTable() {
    for (auto &top : tops_) {
        const std::unique_ptr<Middle> middle(top.load(std::memory_order_relaxed));
        if (middle == nullptr)
            continue;
        for (auto &place : middle->leaves) {
            const std::unique_ptr<Leaf> leaf(place.load(std::memory_order_relaxed));
            if (leaf == nullptr)
                continue;
            for (auto &object : leaf->objects)
                delete object.load(std::memory_order_relaxed); // NOLINT(cppcoreguidelines-owning-memory)
        }
    }
}

Object *HandleTable::find(std::uint64_t handle) const {
    if (kind_of(handle) != kind_)
        return nullptr;
    const auto index = index_of(handle);
    const auto *middle =
        tops_[field(index, kLeafBits + kMiddleBits, kTopBits)].load(std::memory_order_acquire);
    if (middle == nullptr)
        return nullptr;
    const auto *leaf = middle->leaves[field(index, kLeafBits, kMiddleBits)].load(std::memory_order_acquire);
    return leaf == nullptr ? nullptr
                           : leaf->objects[field(index, 0, kLeafBits)].load(std::memory_order_acquire);
}

void HandleTable::store(std::uint64_t handle, std::unique_ptr<Object> object) {
    const auto index = index_of(handle);
    auto &top = tops_[field(index, kLeafBits + kMiddleBits, kTopBits)];
    auto *middle = top.load(std::memory_order_relaxed);
    if (middle == nullptr) {
        middle = std::make_unique<Middle>().release(); // stays: the table lives as long as the process
        top.store(middle, std::memory_order_release);
    }
    auto &place = middle->leaves[field(index, kLeafBits, kMiddleBits)];
    auto *leaf = place.load(std::memory_order_relaxed);
    if (leaf == nullptr) {
        leaf = std::make_unique<Leaf>().release(); // take() deletes it
        place.store(leaf, std::memory_order_release);
    }
    object->handle = handle;
    ++leaf->live;
    leaf->objects[field(index, 0, kLeafBits)].store(object.release(), std::memory_order_release);
}

void HandleTable::add(std::uint64_t handle, std::unique_ptr<Object> object) {
    const std::scoped_lock lock(change_);
    // A primary context or a library may come again under its old number.
    const std::unique_ptr<Object> old = take(index_of(handle));
    store(handle, std::move(object));
}

Object *HandleTable::adopt(std::uint64_t handle, const std::function<std::unique_ptr<Object>()> &make) {
    if (auto *object = find(handle); object != nullptr)
        return object;
    if (kind_of(handle) != kind_ || index_of(handle) < kChosenByDaemon)
        return nullptr;
    const std::scoped_lock lock(change_);
    if (find(handle) == nullptr)
        store(handle, make());
    return find(handle);
}

std::unique_ptr<Object> HandleTable::take(std::uint32_t index) {
    auto *middle = tops_[field(index, kLeafBits + kMiddleBits, kTopBits)].load(std::memory_order_relaxed);
    if (middle == nullptr)
        return nullptr;
    auto &place = middle->leaves[field(index, kLeafBits, kMiddleBits)];
    auto *leaf = place.load(std::memory_order_relaxed);
    if (leaf == nullptr)
        return nullptr;
    std::unique_ptr<Object> object(
        leaf->objects[field(index, 0, kLeafBits)].exchange(nullptr, std::memory_order_acq_rel));
    if (object == nullptr)
        return nullptr;
    --leaf->live;
    // No index of a leaf comes again once the counter has passed it, so an empty one behind it is garbage.
    const auto passed = next_.load(std::memory_order_relaxed) >> kLeafBits;
    if (leaf->live == 0 && index < kChosenByDaemon && (index >> kLeafBits) + 1 < passed) {
        place.store(nullptr, std::memory_order_release);
        const std::unique_ptr<Leaf> garbage(leaf);
    }
    return object;
}

std::unique_ptr<Object> HandleTable::remove(std::uint64_t handle) {
    if (kind_of(handle) != kind_)
        return nullptr;
    const std::scoped_lock lock(change_);
    return take(index_of(handle));
}

std::vector<std::unique_ptr<Object>>
HandleTable::remove_if(const std::function<bool(const Object &)> &condition) {
    const std::scoped_lock lock(change_);
    std::vector<std::uint32_t> indices;
    for (const auto &top : tops_) {
        const auto *middle = top.load(std::memory_order_relaxed);
        if (middle == nullptr)
            continue;
        for (const auto &place : middle->leaves) {
            const auto *leaf = place.load(std::memory_order_relaxed);
            if (leaf == nullptr)
                continue;
            for (const auto &entry : leaf->objects)
                if (const auto *object = entry.load(std::memory_order_relaxed);
                    object != nullptr && condition(*object))
                    indices.push_back(index_of(object->handle));
        }
    }
    std::vector<std::unique_ptr<Object>> removed;
    removed.reserve(indices.size());
    for (const auto index : indices)
        removed.push_back(take(index));
    return removed;
}

} // namespace singularity::client
