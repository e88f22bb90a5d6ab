// SPDX-License-Identifier: GPL-2.0-or-later
// Module images that arrive in pieces. What a session may have of them at a time is limited: memory is taken
// as bytes arrive, never because a number says that they will.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace singularity::proxyd {

inline constexpr std::uint64_t kMostBlobBytes = std::uint64_t{1} << 30; // per session
inline constexpr std::size_t kMostBlobs = 4096;                         // per session

struct Blob {
    std::uint64_t size = 0;       // announced
    bool dropped_data = false;    // there was no room: whatever uses it is out of memory
    std::vector<std::byte> bytes; // and one NUL behind them once it is complete: PTX travels without

    [[nodiscard]] bool complete() const { return !dropped_data && bytes.size() == size + 1; }
};

// Any thread of the session may use it. Errors are broken rules.
class Blobs {
  public:
    [[nodiscard]] Expected<void> begin(std::uint64_t number, std::uint64_t size);
    [[nodiscard]] Expected<void> append(std::uint64_t number, std::uint64_t offset,
                                        std::span<const std::byte> data);
    [[nodiscard]] Expected<void> drop(std::uint64_t number);
    // Whole, from the daemon itself. Whether there was room.
    [[nodiscard]] Expected<bool> put(std::uint64_t number, std::span<const std::byte> data);
    // nullptr: no such blob, or its bytes have not all come. Stays alive with the pointer.
    [[nodiscard]] std::shared_ptr<const Blob> find(std::uint64_t number);
    // Those that are not complete as well. They do not change as long as no record is carried out.
    [[nodiscard]] std::vector<std::pair<std::uint64_t, std::shared_ptr<const Blob>>> all();

  private:
    std::mutex lock_;
    std::unordered_map<std::uint64_t, std::shared_ptr<Blob>> blobs_;
    std::uint64_t held_ = 0; // bytes that have arrived
};

} // namespace singularity::proxyd
