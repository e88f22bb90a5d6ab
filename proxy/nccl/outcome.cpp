// SPDX-License-Identifier: GPL-2.0-or-later
#include "outcome.hpp"

#include "common/log.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <strings.h>

namespace singularity::nccl {

namespace {

constexpr log::Channel kLog("nccl");

// The texts of NCCL's ncclGetErrorString.
constexpr std::array<std::pair<Result, const char *>, 8> kTexts{{
    {Result::success, "no error"},
    {Result::unhandled_cuda_error, "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"},
    {Result::system_error, "unhandled system error (run with NCCL_DEBUG=INFO for details)"},
    {Result::internal_error, "internal error - please report this issue to the NCCL developers"},
    {Result::invalid_argument, "invalid argument (run with NCCL_DEBUG=WARN for details)"},
    {Result::invalid_usage, "invalid usage (run with NCCL_DEBUG=WARN for details)"},
    {Result::remote_error, "remote process exited or there was a network error"},
    {Result::in_progress, "NCCL operation in progress"},
}};

// Who has asked for the last error goes on reading it while others are noted.
constexpr std::size_t kKept = 16;
constexpr std::size_t kLongest = 1024;

struct Notes {
    std::mutex lock;
    std::array<std::array<char, kLongest>, kKept> texts{};
    std::size_t next = 1;
    std::atomic<const char *> last = texts[0].data();
    std::atomic<bool> logged = false;
};

Notes &notes() {
    static auto &instance = *std::make_unique<Notes>().release(); // outlives exit handlers
    return instance;
}

} // namespace

const char *text_of(Result result) {
    const auto *const found =
        std::ranges::find(kTexts, result, [](const auto &entry) { return entry.first; });
    return found == kTexts.end() ? "unknown result code" : found->second;
}

void note(std::string_view why) noexcept {
    static std::once_flag once;
    std::call_once(once, read_log_settings);
    auto &all = notes();
    {
        const std::scoped_lock lock(all.lock);
        auto &text = all.texts[all.next % kKept];
        ++all.next;
        const auto size = std::min(why.size(), kLongest - 1);
        std::ranges::copy(why.substr(0, size), text.begin());
        text[size] = '\0';
        all.last.store(text.data(), std::memory_order_release);
    }
    if (all.logged.load(std::memory_order_relaxed))
        kLog.warning("{}", why);
    else
        kLog.debug("{}", why);
}

const char *last_error() { return notes().last.load(std::memory_order_acquire); }

void read_log_settings() {
    constexpr std::array kLogs{"WARN", "INFO", "ABORT", "TRACE"};
    const char *const wish = std::getenv("NCCL_DEBUG");
    notes().logged = wish != nullptr &&
                     std::ranges::any_of(kLogs, [&](const char *one) { return strcasecmp(one, wish) == 0; });
}

} // namespace singularity::nccl
