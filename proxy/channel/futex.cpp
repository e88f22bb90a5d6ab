// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/channel/futex.hpp"

#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::channel {

namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

long futex(std::atomic<std::uint32_t> &word, int operation, std::uint32_t value,
           const timespec *limit) noexcept {
    // Not FUTEX_PRIVATE_FLAG: the sleeper is in another process.
    return syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

} // namespace

void futex_wait(std::atomic<std::uint32_t> &word, std::uint32_t value,
                std::chrono::nanoseconds limit) noexcept {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
    const timespec span{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
    // The result says why it returned; the caller looks at the word in any case.
    static_cast<void>(futex(word, FUTEX_WAIT, value, &span));
}

void futex_wake(std::atomic<std::uint32_t> &word) noexcept {
    static_cast<void>(futex(word, FUTEX_WAKE, INT_MAX, nullptr));
}

bool may_spin() noexcept {
    static const bool several = [] {
        cpu_set_t set;
        CPU_ZERO(&set);
        return sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) > 1;
    }();
    return several;
}

} // namespace singularity::channel
