// SPDX-License-Identifier: GPL-2.0-or-later
// Pinned memory for the data of copies from and to a busy stream. The ring has its room back at once, and the
// session's thread does not wait for the device; and the driver does not: a copy from or to memory that is
// not pinned waits inside of it, with a lock of the context that calls of other threads need.
#pragma once

#include "driver_api/backend.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace singularity::proxyd {

class Staging {
  public:
    static constexpr std::size_t kChunk = std::size_t{256} << 10; // the longest data of one record or reply
    static constexpr std::uint32_t kChunks = 32;

    // So many bytes; nullptr: no room, or the driver cannot.
    [[nodiscard]] std::byte *take(const driver_api::Backend &driver, std::size_t size);
    // A copy of the data, likewise, that stays until release_after() lets it go.
    [[nodiscard]] const std::byte *hold(const driver_api::Backend &driver, std::span<const std::byte> data);
    // What was enqueued to the stream until now has used it: free when the stream is there.
    [[nodiscard]] CUresult release_after(const driver_api::Backend &driver, const std::byte *held,
                                         CUstream stream);
    // At once: nothing is enqueued that uses it.
    void release(const std::byte *held);

  private:
    struct Chunk {
        Staging *owner = nullptr;
        std::uint32_t index = 0;
    };
    static void CUDA_CB done(void *chunk);

    std::once_flag made_;
    std::vector<std::byte> memory_;
    std::byte *base_ = nullptr;
    std::vector<Chunk> chunks_;
    std::atomic<std::uint32_t> busy_ = 0; // one bit for each
};

} // namespace singularity::proxyd
