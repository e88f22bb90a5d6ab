// SPDX-License-Identifier: GPL-2.0-or-later
// Addresses and the memory behind them. Device addresses lie in an area of their own, far from where
// programs, libraries and heaps are; memory behind them is counted against the device's size.
#pragma once

#include "driver/completion.hpp"
#include "driver/result.hpp"

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace singularity::softgpu::driver {

inline constexpr std::uint64_t kPage = 4096;
// Physical device memory is handed out in these units, as by NVIDIA's driver.
inline constexpr std::uint64_t kGranularity = std::uint64_t{2} << 20U;

[[nodiscard]] inline std::uint64_t address_of(const void *pointer) {
    return std::bit_cast<std::uint64_t>(pointer);
}

[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

// How much of a device's memory is taken. Never more than there is.
class Account {
  public:
    explicit Account(std::uint64_t size) : size_(size) {}
    [[nodiscard]] bool take(std::uint64_t bytes);
    void give_back(std::uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t size() const { return size_; }
    [[nodiscard]] std::uint64_t used() const { return used_.load(std::memory_order_relaxed); }

  private:
    std::uint64_t size_;
    std::atomic<std::uint64_t> used_{0};
};

// Pages of this process, unmapped with the last who holds it: whoever runs work that may touch them holds it,
// so nothing that runs ever loses them.
class Mapping {
  public:
    Mapping(std::uint64_t address, std::uint64_t size, std::function<void()> at_end)
        : address_(address), size_(size), at_end_(std::move(at_end)) {}
    ~Mapping() {
        if (at_end_)
            at_end_();
        gone_->complete(CUDA_SUCCESS);
    }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    Mapping(Mapping &&) = delete;
    Mapping &operator=(Mapping &&) = delete;

    [[nodiscard]] std::uint64_t address() const { return address_; }
    [[nodiscard]] std::uint64_t size() const { return size_; }
    // Done when the last holder has let go.
    [[nodiscard]] const CompletionPtr &gone() const { return gone_; }

  private:
    std::uint64_t address_;
    std::uint64_t size_;
    std::function<void()> at_end_;
    CompletionPtr gone_ = std::make_shared<Completion>();
};

// Address ranges of the device area. Every range is reserved from the kernel before it is handed out.
class AddressSpace {
  public:
    // `wish` (0: none) is taken where it is free, else it is ignored, as cuMemAddressReserve does.
    [[nodiscard]] Result<std::uint64_t> reserve(std::uint64_t size, std::uint64_t alignment,
                                                std::uint64_t wish);
    void release(std::uint64_t address, std::uint64_t size);
    // From now on mmap(2) says where a range lies for which there is no wish.
    void leave_to_system() { system_ = true; }

  private:
    [[nodiscard]] static Result<std::uint64_t> anywhere(std::uint64_t size, std::uint64_t alignment);
    [[nodiscard]] bool take(std::uint64_t address, std::uint64_t size);

    std::mutex mutex_;
    std::uint64_t cursor_ = 0;
    std::size_t taken_ = 0; // ranges
    std::atomic<bool> system_ = false;
};

[[nodiscard]] AddressSpace &address_space();

// Fresh zero pages in the device area; `account` (nullptr: none) is charged until the last holder is gone.
[[nodiscard]] Result<std::shared_ptr<Mapping>> map_device(std::uint64_t size, Account *account);
// Fresh zero pages anywhere: pinned host memory.
[[nodiscard]] Result<std::shared_ptr<Mapping>> map_host(std::uint64_t size);

// Memory without an address (cuMemCreate), which can be mapped at several. All of a device lives in one file,
// so that a thousand allocations need one descriptor.
class PhysicalMemory {
  public:
    explicit PhysicalMemory(Account &account) : account_(account) {}
    // The offset of `size` zero bytes.
    [[nodiscard]] Result<std::uint64_t> allocate(std::uint64_t size);
    void free(std::uint64_t offset, std::uint64_t size);
    // Puts it at a reserved address; a Mapping that puts the reservation back there at its end, and holds
    // `owner` until then.
    [[nodiscard]] Result<std::shared_ptr<Mapping>> map(std::uint64_t offset, std::uint64_t size,
                                                       std::uint64_t address, std::shared_ptr<void> owner);

  private:
    [[nodiscard]] CUresult open();

    Account &account_;
    std::mutex mutex_;
    int file_ = -1;
    std::uint64_t end_ = 0;                       // of the file's used part
    std::map<std::uint64_t, std::uint64_t> free_; // offset -> size, neighbours joined
};

} // namespace singularity::softgpu::driver
