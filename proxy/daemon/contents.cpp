// SPDX-License-Identifier: GPL-2.0-or-later
#include "contents.hpp"

#include "log.hpp"

#include <algorithm>
#include <iterator>

#include <sys/mman.h>

namespace singularity::proxyd {

namespace {

// Bytes after which it is known what looking costs and saves; and of how many chunks one is looked at where
// it does not pay, since programs change.
constexpr std::uint64_t kEnoughBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kOneOf = 64;

} // namespace

std::shared_ptr<HostCopy> HostCopy::make(std::uint64_t size) {
    void *memory =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return nullptr;
    static_cast<void>(madvise(memory, size, MADV_HUGEPAGE)); // fewer faults; without it, more
    return std::shared_ptr<HostCopy>(new HostCopy({static_cast<std::byte *>(memory), size}));
}

HostCopy::~HostCopy() { munmap(bytes_.data(), bytes_.size()); }

std::shared_ptr<HostCopy> Contents::copy_of(const Digest &content, std::uint64_t size) {
    const std::scoped_lock lock(lock_);
    const auto found = copies_.find({.content = content, .size = size});
    return found == copies_.end() ? nullptr : found->second.lock();
}

void Contents::add(const Digest &content, const std::shared_ptr<HostCopy> &copy) {
    const std::scoped_lock lock(lock_);
    std::erase_if(copies_, [](const auto &entry) { return entry.second.expired(); });
    copies_.insert_or_assign({.content = content, .size = copy->bytes().size()}, copy);
}

void Contents::forget(const Digest &content, const HostCopy &copy) {
    const std::scoped_lock lock(lock_);
    const auto found = copies_.find({.content = content, .size = copy.bytes().size()});
    if (found != copies_.end() && found->second.lock().get() == &copy)
        copies_.erase(found);
}

void Contents::leave(const Left &left) {
    const std::scoped_lock lock(lock_);
    left_.push_back(left);
}

std::optional<CUmemGenericAllocationHandle> Contents::take(std::uint64_t size,
                                                           const std::optional<Digest> &content) {
    const std::scoped_lock lock(lock_);
    const auto found = std::ranges::find_if(
        left_, [&](const Left &one) { return one.size == size && (!content || one.content == content); });
    if (found == left_.end())
        return std::nullopt;
    const auto memory = found->memory;
    left_.erase(found);
    return memory;
}

std::uint64_t Contents::release() {
    std::vector<Left> left;
    {
        const std::scoped_lock lock(lock_);
        left.swap(left_);
    }
    std::uint64_t bytes = 0;
    for (const auto &one : left) {
        if (const auto result = back_end_.driver().cuMemRelease(one.memory); result != CUDA_SUCCESS)
            kLog.warning("cuMemRelease of memory that was left: {}", result_name(back_end_.driver(), result));
        bytes += one.size;
    }
    return bytes;
}

bool Contents::looks() {
    if (look_ != Look::when_it_pays)
        return look_ == Look::always;
    const std::scoped_lock lock(lock_);
    ++asked_;
    // What was not copied would have taken as long for each byte as what was.
    const auto saved = std::chrono::duration<double>(counts_.copying) * static_cast<double>(counts_.spared) /
                       static_cast<double>(std::max<std::uint64_t>(counts_.copied, 1));
    return counts_.looked < kEnoughBytes || saved >= counts_.looking || asked_ % kOneOf == 0;
}

void Contents::looked(std::uint64_t bytes, Clock::duration took) {
    const std::scoped_lock lock(lock_);
    counts_.looked += bytes;
    counts_.looking += took;
}

void Contents::copied(std::uint64_t bytes, Clock::duration took) {
    const std::scoped_lock lock(lock_);
    counts_.copied += bytes;
    counts_.copying += took;
}

void Contents::spared(std::uint64_t bytes) {
    const std::scoped_lock lock(lock_);
    counts_.spared += bytes;
}

Contents::Counts Contents::counts() {
    const std::scoped_lock lock(lock_);
    return counts_;
}

} // namespace singularity::proxyd
