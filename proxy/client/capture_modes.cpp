// SPDX-License-Identifier: GPL-2.0-or-later
#include "capture_modes.hpp"

#include "context.hpp"
#include "process.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace singularity::client {

namespace {

struct Capture {
    std::uint64_t stream;
    Context *context;
    CUstreamCaptureMode mode;
    std::thread::id thread;
};

struct Captures {
    std::mutex lock;
    std::vector<Capture> all;
};

Captures &captures() {
    static auto &instance = *std::make_unique<Captures>().release(); // see process()
    return instance;
}

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool forbids(const Capture &capture) {
    const bool own =
        capture.thread == std::this_thread::get_id() && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool global =
        thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    return own || global;
}

} // namespace

void capture_began(const Route &route, std::uint64_t stream, CUstreamCaptureMode mode) {
    auto &mine = captures();
    const std::scoped_lock lock(mine.lock);
    mine.all.push_back(
        {.stream = stream, .context = route.context, .mode = mode, .thread = std::this_thread::get_id()});
    process().captures.fetch_add(1);
}

void capture_ended(std::uint64_t stream) {
    auto &mine = captures();
    const std::scoped_lock lock(mine.lock);
    const auto gone = std::erase_if(mine.all, [&](const Capture &one) { return one.stream == stream; });
    process().captures.fetch_sub(static_cast<int>(gone));
}

CUresult may_end_capture(std::uint64_t stream) {
    auto &mine = captures();
    const std::scoped_lock lock(mine.lock);
    const auto found = std::ranges::find(mine.all, stream, &Capture::stream);
    return found == mine.all.end() || found->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
                   found->thread == std::this_thread::get_id()
               ? CUDA_SUCCESS
               : CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

CUresult unsafe_call() {
    if (process().captures.load(std::memory_order_relaxed) <= 0 ||
        thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    std::vector<Capture> forbidding;
    {
        auto &mine = captures();
        const std::scoped_lock lock(mine.lock);
        std::ranges::copy_if(mine.all, std::back_inserter(forbidding), &forbids);
    }
    bool forbidden = false;
    for (const auto &capture : forbidding) {
        const OnContext scope(*capture.context);
        auto *const stream = std::bit_cast<CUstream>(capture.stream);
        auto status = CU_STREAM_CAPTURE_STATUS_NONE;
        // It may have ended with its stream or context.
        if (cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) {
            capture_ended(capture.stream);
            continue;
        }
        forbidden = true;
        // What the driver takes as the end of a capture: a question about its stream.
        static_cast<void>(cuStreamQuery(stream));
    }
    return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode) {
    return std::exchange(thread_mode, mode);
}

} // namespace singularity::client
