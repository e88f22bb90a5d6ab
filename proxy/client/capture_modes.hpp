// SPDX-License-Identifier: GPL-2.0-or-later
// Which calls a capture forbids, to whom. The daemon's threads are none of the program's, so the rules about
// threads (cuda.h, cuThreadExchangeStreamCaptureMode) are kept here.
#pragma once

#include "proxy/client/forward.hpp"
#include "proxy/libcuda/cuda.hpp"

#include <cstdint>

namespace singularity::client {

// By the calling thread; `stream`: as it travels.
void capture_began(const Route &route, std::uint64_t stream, CUstreamCaptureMode mode);
void capture_ended(std::uint64_t stream);
// WRONG_THREAD: only the thread that began it may end it, unless its mode is relaxed.
[[nodiscard]] CUresult may_end_capture(std::uint64_t stream);

// For calls that may use a stream or memory behind the captures' back (allocation, registration, waiting for
// a whole context, loading code). Where a capture forbids it, that capture is invalid from then on.
[[nodiscard]] CUresult unsafe_call();

// Of the calling thread; returns the one before.
[[nodiscard]] CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode);

} // namespace singularity::client
