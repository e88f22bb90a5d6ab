// SPDX-License-Identifier: GPL-2.0-or-later
#include "staging.hpp"

#include <algorithm>
#include <bit>

namespace singularity::proxyd {

namespace {
constexpr std::size_t kStagingPage = 4096;
} // namespace

void CUDA_CB Staging::done(void *chunk) {
    const auto *mine = static_cast<const Chunk *>(chunk);
    mine->owner->busy_.fetch_and(~(std::uint32_t{1} << mine->index), std::memory_order_acq_rel);
}

std::byte *Staging::take(const driver_api::Backend &driver, std::size_t size) {
    if (driver.cuLaunchHostFunc == nullptr || driver.cuMemHostRegister_v2 == nullptr || size > kChunk)
        return nullptr;
    std::call_once(made_, [&] {
        // Whole pages: whatever else lies beside it is not registered.
        memory_.resize(kChunk * kChunks + kStagingPage);
        base_ = memory_.data() +
                (kStagingPage - std::bit_cast<std::uintptr_t>(memory_.data()) % kStagingPage) % kStagingPage;
        // Portable: streams of all the session's contexts copy from here. Memory that is not registered would
        // be copied by the calling thread, which is what is to be avoided.
        if (driver.cuMemHostRegister_v2(base_, kChunk * kChunks, CU_MEMHOSTREGISTER_PORTABLE) != CUDA_SUCCESS)
            return;
        for (std::uint32_t index = 0; index < kChunks; ++index)
            chunks_.push_back({.owner = this, .index = index});
    });
    if (chunks_.empty())
        return nullptr;
    std::uint32_t busy = busy_.load(std::memory_order_acquire);
    std::uint32_t index = 0;
    do {
        index = static_cast<std::uint32_t>(std::countr_one(busy));
        if (index >= kChunks)
            return nullptr;
    } while (
        !busy_.compare_exchange_weak(busy, busy | (std::uint32_t{1} << index), std::memory_order_acq_rel));
    return base_ + index * kChunk;
}

const std::byte *Staging::hold(const driver_api::Backend &driver, std::span<const std::byte> data) {
    std::byte *const place = take(driver, data.size());
    if (place != nullptr)
        std::ranges::copy(data, place);
    return place;
}

CUresult Staging::release_after(const driver_api::Backend &driver, const std::byte *held, CUstream stream) {
    // A chunk whose end the driver does not tell is not used again: the copy may still read it.
    return driver.cuLaunchHostFunc(stream, &Staging::done,
                                   &chunks_[static_cast<std::size_t>(held - base_) / kChunk]);
}

void Staging::release(const std::byte *held) {
    done(&chunks_[static_cast<std::size_t>(held - base_) / kChunk]);
}

} // namespace singularity::proxyd
