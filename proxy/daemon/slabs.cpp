// SPDX-License-Identifier: GPL-2.0-or-later
#include "slabs.hpp"

#include "device_memory.hpp"
#include "log.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include <sys/mman.h>

namespace singularity::proxyd {

std::unique_ptr<HostCopy> HostCopy::make(std::uint64_t size) {
    void *memory =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return nullptr;
    static_cast<void>(madvise(memory, size, MADV_HUGEPAGE)); // fewer faults; without it, more
    return std::unique_ptr<HostCopy>(new HostCopy({static_cast<std::byte *>(memory), size}));
}

HostCopy::~HostCopy() { munmap(bytes_.data(), bytes_.size()); }

CUresult Slabs::make(std::uint64_t address, Chunk &chunk, bool on_host) {
    if (!on_host && residency_ != nullptr && !residency_->take(chunk.size, chunk.host != nullptr))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const auto result = map_memory(back_end_, address, chunk.size, on_host);
    if (result != CUDA_SUCCESS) {
        if (!on_host && residency_ != nullptr)
            residency_->give_back(chunk.size);
        return result;
    }
    chunk.lent = on_host;
    if (!on_host)
        on_device_.fetch_add(chunk.size);
    return CUDA_SUCCESS;
}

void Slabs::drop(std::uint64_t address, Chunk &chunk) {
    if (chunk.host != nullptr) {
        chunk.host.reset();
        return;
    }
    if (const auto result = back_end_.driver().cuMemUnmap(address, chunk.size); result != CUDA_SUCCESS)
        kLog.warning("cuMemUnmap of a slab: {}", result_name(back_end_.driver(), result));
    if (std::exchange(chunk.lent, false))
        return;
    on_device_.fetch_sub(chunk.size);
    if (residency_ != nullptr)
        residency_->give_back(chunk.size);
}

CUresult Slabs::map(std::uint64_t address, std::uint64_t size, std::uint64_t context, bool on_host) {
    const std::scoped_lock lock(lock_);
    if (closed_)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    for (std::uint64_t at = 0; at < size; at += kChunk) {
        Chunk chunk;
        chunk.size = std::min(kChunk, size - at);
        chunk.context = context;
        if (const auto result = make(address + at, chunk, on_host); result != CUDA_SUCCESS) {
            for (std::uint64_t made = 0; made < at; made += kChunk) {
                const auto known = chunks_.find(address + made);
                drop(known->first, known->second);
                chunks_.erase(known);
            }
            return result;
        }
        chunks_.emplace(address + at, std::move(chunk));
    }
    bytes_.fetch_add(size);
    return CUDA_SUCCESS;
}

// Without the lock: the driver may wait for work that waits for a collective, which uses what is here.
void Slabs::unmap(std::uint64_t address, std::uint64_t size) {
    Chunks gone;
    {
        const std::scoped_lock lock(lock_);
        for (auto at = chunks_.lower_bound(address); at != chunks_.end() && at->first - address < size;)
            gone.insert(chunks_.extract(at++));
    }
    for (auto &[at, chunk] : gone) {
        drop(at, chunk);
        bytes_.fetch_sub(chunk.size);
    }
}

void Slabs::drop_all() { unmap(0, UINT64_MAX); }

void Slabs::close() {
    const std::scoped_lock lock(lock_);
    closed_ = true;
}

void Slabs::keep(std::uint64_t context, bool stays) {
    const std::scoped_lock lock(lock_);
    for (auto &[address, chunk] : chunks_)
        if (chunk.context == context)
            chunk.stays = stays;
}

// On a stream of its own: the context's may wait for what is still to come.
CUresult Slabs::copy(std::uint64_t address, Chunk &chunk, bool in) {
    const auto &driver = back_end_.driver();
    if (driver.cuStreamCreate == nullptr || driver.cuStreamDestroy_v2 == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    enter_(chunk.context);
    CUstream stream = nullptr;
    auto result = driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return result;
    auto *const host = chunk.host->bytes().data();
    result = in ? driver.cuMemcpyHtoDAsync_v2(address, host, chunk.size, stream)
                : driver.cuMemcpyDtoHAsync_v2(host, address, chunk.size, stream);
    if (result == CUDA_SUCCESS)
        result = driver.cuStreamSynchronize(stream);
    const auto ended = driver.cuStreamDestroy_v2(stream);
    return result == CUDA_SUCCESS ? ended : result;
}

CUresult Slabs::take_out(std::uint64_t address, Chunk &chunk) {
    auto host = HostCopy::make(chunk.size);
    if (host == nullptr)
        return CUDA_ERROR_OUT_OF_MEMORY;
    chunk.host = std::move(host);
    const auto result = copy(address, chunk, false);
    auto kept = std::exchange(chunk.host, nullptr);
    if (result != CUDA_SUCCESS)
        return result;
    // Without a context: within one the driver may wait for all of its work, parked streams among it.
    enter_(0);
    drop(address, chunk);
    chunk.host = std::move(kept);
    return CUDA_SUCCESS;
}

CUresult Slabs::put_in(std::uint64_t address, Chunk &chunk, bool on_host) {
    enter_(chunk.context); // whoever was looked at before may have none any more
    if (const auto result = make(address, chunk, on_host); result != CUDA_SUCCESS)
        return result;
    const auto result = copy(address, chunk, true);
    auto kept = std::exchange(chunk.host, nullptr);
    if (result == CUDA_SUCCESS)
        return result;
    drop(address, chunk);
    chunk.host = std::move(kept);
    return result;
}

// What was lent memory of the host goes to the device by way of a copy: its addresses are the same.
CUresult Slabs::bring_in(bool on_host, const std::function<bool()> &is_quiet) {
    const std::scoped_lock lock(lock_);
    const bool some_lent = std::ranges::any_of(chunks_, [](const auto &entry) { return entry.second.lent; });
    const bool takes_back = some_lent && !on_host && is_quiet();
    for (auto &[address, chunk] : chunks_) {
        if (closed_ || chunk.stays)
            continue;
        if (chunk.lent && takes_back) {
            if (residency_ != nullptr && residency_->taken() + chunk.size > residency_->device_bytes())
                return CUDA_ERROR_OUT_OF_MEMORY;
            if (const auto result = take_out(address, chunk); result != CUDA_SUCCESS)
                return result;
        }
        if (chunk.host == nullptr)
            continue;
        auto result = put_in(address, chunk, false);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && on_host)
            result = put_in(address, chunk, true);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

CUresult Slabs::send_out() {
    const std::scoped_lock lock(lock_);
    for (auto &[address, chunk] : chunks_)
        if (chunk.host == nullptr && !chunk.lent && !chunk.stays && !closed_)
            return take_out(address, chunk);
    return CUDA_SUCCESS;
}

Expected<void> Slabs::use(std::uint64_t address, std::uint64_t size,
                          const std::function<Expected<void>(const Piece &)> &what) {
    const std::scoped_lock lock(lock_);
    for (std::uint64_t done = 0; done < size;) {
        Piece piece{.address = address + done, .host = nullptr, .offset = done, .size = size - done};
        auto chunk = chunks_.upper_bound(piece.address);
        if (chunk != chunks_.end()) // up to where it begins it is no slab's
            piece.size = std::min(piece.size, chunk->first - piece.address);
        if (chunk != chunks_.begin()) {
            chunk = std::prev(chunk);
            const auto at = piece.address - chunk->first;
            if (at < chunk->second.size) {
                piece.size = std::min(piece.size, chunk->second.size - at);
                if (chunk->second.host != nullptr)
                    piece.host = chunk->second.host->bytes().data() + at;
            }
        }
        if (auto used = what(piece); !used)
            return used;
        done += piece.size;
    }
    return {};
}

} // namespace singularity::proxyd
