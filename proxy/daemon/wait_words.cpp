// SPDX-License-Identifier: GPL-2.0-or-later
#include "wait_words.hpp"

#include <cstring>

namespace singularity::proxyd {

namespace {
constexpr std::size_t kWords = 1024;
constexpr std::size_t kBytes = kWords * sizeof(std::uint32_t);
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
} // namespace

std::shared_ptr<WaitWords> WaitWords::make(const driver_api::Backend &driver) {
    if (driver.cuMemHostAlloc == nullptr || driver.cuMemHostGetDevicePointer_v2 == nullptr ||
        driver.cuStreamWaitValue32_v2 == nullptr || driver.cuLaunchHostFunc == nullptr)
        return nullptr;
    void *memory = nullptr;
    CUdeviceptr device = 0;
    if (driver.cuMemHostAlloc(&memory, kBytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) !=
            CUDA_SUCCESS ||
        memory == nullptr || driver.cuMemHostGetDevicePointer_v2(&device, memory, 0) != CUDA_SUCCESS)
        return nullptr;
    std::memset(memory, 0, kBytes);
    return std::shared_ptr<WaitWords>(
        new WaitWords(driver, static_cast<std::atomic<std::uint32_t> *>(memory), device));
}

std::optional<WaitWords::Word> WaitWords::take() {
    const std::scoped_lock lock(lock_);
    if (words_ == nullptr || (free_.empty() && used_ == kWords))
        return std::nullopt;
    std::size_t index = used_;
    if (free_.empty()) {
        ++used_;
    } else {
        index = free_.back();
        free_.pop_back();
    }
    return Word{.index = index, .value = words_[index].load(std::memory_order_relaxed)};
}

void WaitWords::give_back(std::size_t index) {
    const std::scoped_lock lock(lock_);
    free_.push_back(index);
}

void WaitWords::set(std::size_t index, std::uint32_t value) {
    const std::scoped_lock lock(lock_);
    if (words_ != nullptr)
        words_[index].store(value, std::memory_order_release);
}

CUresult WaitWords::wait(CUstream stream, std::size_t index, std::uint32_t value) const {
    return driver_.cuStreamWaitValue32_v2(stream, device_ + index * sizeof(std::uint32_t), value,
                                          CU_STREAM_WAIT_VALUE_GEQ);
}

void WaitWords::forget() {
    const std::scoped_lock lock(lock_);
    words_ = nullptr;
}

} // namespace singularity::proxyd
