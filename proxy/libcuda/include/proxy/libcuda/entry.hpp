// SPDX-License-Identifier: GPL-2.0-or-later
// What the entry points of a libcuda.so.1 have in common, whoever is behind them. The generated ones use it.
#pragma once

#include "driver_api/api_id.hpp" // generated

#include <cstdint>
#include <utility>
#include <vector>

namespace singularity::libcuda {

// While one lives, stream 0 means the calling thread's own default stream (functions with _ptds and _ptsz).
class PerThreadStream {
  public:
    PerThreadStream() : before_(std::exchange(active_, true)) {}
    ~PerThreadStream() { active_ = before_; }
    PerThreadStream(const PerThreadStream &) = delete;
    PerThreadStream &operator=(const PerThreadStream &) = delete;
    PerThreadStream(PerThreadStream &&) = delete;
    PerThreadStream &operator=(PerThreadStream &&) = delete;

    [[nodiscard]] static bool active() { return active_; }

  private:
    static thread_local bool active_;
    bool before_;
};

[[nodiscard]] inline bool per_thread_default_stream() { return PerThreadStream::active(); }

// Counts the call, logs the function's name the first time; CUDA_ERROR_NOT_SUPPORTED. Before cuInit has
// succeeded: what every function answers then.
[[nodiscard]] int unsupported(driver_api::ApiId id) noexcept;

struct UnsupportedCall {
    driver_api::ApiId id;
    std::uint64_t calls;
};
// Functions that were called and are not supported, by id.
[[nodiscard]] std::vector<UnsupportedCall> unsupported_calls();

// Generated: the address of the function's symbol in this library.
[[nodiscard]] void *address_of(driver_api::ApiId id);

} // namespace singularity::libcuda
