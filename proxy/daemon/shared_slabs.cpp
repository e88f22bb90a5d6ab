// SPDX-License-Identifier: GPL-2.0-or-later
#include "shared_slabs.hpp"

#include "log.hpp"

#include <random>
#include <utility>

namespace singularity::proxyd {

namespace {

std::uint64_t random_word() {
    std::random_device device;
    const std::uint64_t word = std::uint64_t{device()} << 32 | device();
    return word == 0 ? 1 : word;
}

} // namespace

SharedSlab::SharedSlab(const BackEnd &back_end, const Key &key, std::uint32_t device, std::vector<Part> parts)
    : back_end_(back_end), key_(key), device_(device), parts_(std::move(parts)) {
    for (const auto &part : parts_)
        size_ += part.size;
}

SharedSlab::~SharedSlab() {
    for (const auto &part : parts_)
        if (const auto result = back_end_.driver().cuMemRelease(part.memory); result != CUDA_SUCCESS)
            kLog.warning("cuMemRelease of a shared slab: {}", result_name(back_end_.driver(), result));
}

SharedSlab::Export SharedSlab::add(std::uint64_t offset, std::uint64_t size) {
    const std::scoped_lock lock(lock_);
    auto &known = exports_[offset];
    if (known.size != size)
        known = {.offset = offset, .size = size, .number = random_word()};
    return known;
}

bool SharedSlab::add(const Export &known) {
    if (known.size == 0 || known.offset > size_ || known.size > size_ - known.offset)
        return false;
    const std::scoped_lock lock(lock_);
    exports_[known.offset] = known;
    return true;
}

void SharedSlab::remove(std::uint64_t offset) {
    const std::scoped_lock lock(lock_);
    exports_.erase(offset);
}

void SharedSlab::remove_all() {
    const std::scoped_lock lock(lock_);
    exports_.clear();
}

bool SharedSlab::has(const Export &wanted) {
    const std::scoped_lock lock(lock_);
    const auto found = exports_.find(wanted.offset);
    return found != exports_.end() && found->second == wanted;
}

std::vector<SharedSlab::Export> SharedSlab::exports() {
    const std::scoped_lock lock(lock_);
    std::vector<Export> out;
    out.reserve(exports_.size());
    for (const auto &[offset, one] : exports_)
        out.push_back(one);
    return out;
}

SharedSlabs &SharedSlabs::all() {
    static SharedSlabs instance;
    return instance;
}

SharedSlab::Key SharedSlabs::new_key() { return {random_word(), random_word()}; }

void SharedSlabs::add(const std::shared_ptr<SharedSlab> &slab) {
    const std::scoped_lock lock(lock_);
    std::erase_if(slabs_, [](const auto &entry) { return entry.second.expired(); });
    slabs_[slab->key()] = slab;
}

std::shared_ptr<SharedSlab> SharedSlabs::find(const SharedSlab::Key &key) {
    const std::scoped_lock lock(lock_);
    const auto found = slabs_.find(key);
    return found == slabs_.end() ? nullptr : found->second.lock();
}

} // namespace singularity::proxyd
