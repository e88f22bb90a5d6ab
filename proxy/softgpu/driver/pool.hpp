// SPDX-License-Identifier: GPL-2.0-or-later
// Memory pools and stream-ordered allocation. A block that is freed in a stream can be given out again at
// once to the same stream, whose order keeps the two users apart; to others when the free has been reached.
#pragma once

#include "driver/context.hpp"
#include "driver/handles.hpp"
#include "driver/heap.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace singularity::softgpu::driver {

class Pool : public std::enable_shared_from_this<Pool> {
  public:
    Pool(Device &device, const CUmemPoolProps &properties);

    [[nodiscard]] Device &device() const { return device_; }
    [[nodiscard]] const CUmemPoolProps &properties() const { return properties_; }
    [[nodiscard]] Result<CUdeviceptr> allocate(Stream &stream, std::uint64_t size);
    // In stream order.
    [[nodiscard]] CUresult free(Stream &stream, const Allocation &allocation);
    // The stream has reached the free.
    void free_done(std::uint64_t address, std::uint64_t id);
    // Nothing uses it any more.
    void free_now(std::uint64_t address);
    // What synchronising calls do: gives back what is above the release threshold.
    void trim() { heap_.trim(release_threshold); }
    void trim_to(std::uint64_t keep) { heap_.trim(keep); }
    [[nodiscard]] CUresult get(CUmemPool_attribute attribute, void *value);
    [[nodiscard]] CUresult set(CUmemPool_attribute attribute, const void *value);
    [[nodiscard]] CUresult set_access(const CUmemAccessDesc &access);
    [[nodiscard]] CUmemAccess_flags access(unsigned device) const;

    CUmemoryPool handle = nullptr;
    std::atomic<std::uint64_t> release_threshold{0};

  private:
    struct Pending {
        Block block;
        std::uint64_t stream = 0; // id
        CompletionPtr freed;
    };
    void enter(const Context &context, const Block &block, std::uint64_t size);
    [[nodiscard]] std::optional<Pending> take_pending(std::uint64_t size, std::uint64_t stream,
                                                      bool any_stream);

    Device &device_;
    CUmemPoolProps properties_;
    Heap heap_;
    std::mutex mutex_;
    std::vector<Pending> pending_;
    std::map<std::uint64_t, Block> blocks_; // in use, by address
    std::atomic<std::uint64_t> readable_;
    std::atomic<std::uint64_t> writable_;
    std::atomic<std::uint64_t> used_{0};
    std::atomic<std::uint64_t> used_high_{0};
    std::atomic<std::uint64_t> reserved_high_{0};
    std::atomic<int> follow_events_{1};
    std::atomic<int> opportunistic_{1};
    std::atomic<int> internal_{1};
};

[[nodiscard]] Handles<Pool, CUmemoryPool, HandleKind::pool> &pools();
[[nodiscard]] std::shared_ptr<Pool> default_pool(Device &device);
[[nodiscard]] std::shared_ptr<Pool> current_pool(Device &device);
void trim_pools(const Device &device);

} // namespace singularity::softgpu::driver
