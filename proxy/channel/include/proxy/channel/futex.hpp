// SPDX-License-Identifier: GPL-2.0-or-later
// futex(2) on words that two processes share, and the wait in front of it that costs no system call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace singularity::channel {

// No sleeper sleeps longer without looking again: a lost wake-up or a lying other side costs that much.
inline constexpr std::chrono::milliseconds kLongestSleep{100};

// Sleeps while the word has this value, at most `limit`. May return early for no reason.
void futex_wait(std::atomic<std::uint32_t> &word, std::uint32_t value,
                std::chrono::nanoseconds limit) noexcept;
void futex_wake(std::atomic<std::uint32_t> &word) noexcept;

// Whether looking at a word can pay at all: not where the other side needs the same processor.
[[nodiscard]] bool may_spin() noexcept;

// Looks at the condition again and again for about this long; whether it came true.
template <class Condition>
[[nodiscard]] bool spin_until(Condition condition, std::chrono::nanoseconds length) {
    if (condition())
        return true;
    if (!may_spin())
        return false;
    // Reading the clock costs as much as several looks.
    constexpr int kLooksPerReading = 16;
    const auto end = std::chrono::steady_clock::now() + length;
    do {
        for (int look = 0; look < kLooksPerReading; ++look) {
            if (condition())
                return true;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
    } while (std::chrono::steady_clock::now() < end);
    return condition();
}

} // namespace singularity::channel
