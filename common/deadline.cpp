// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/deadline.hpp"

#include <cerrno>
#include <limits>

#include <fmt/chrono.h>
#include <fmt/core.h>

namespace singularity {

Deadline Deadline::after(std::chrono::milliseconds span) {
    const auto now = Clock::now();
    // Compared in milliseconds: converting a long span to the clock's nanoseconds would overflow.
    const auto room = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::time_point::max() - now);
    if (span >= room)
        return {Clock::time_point::max(), span};
    return {now + std::max(span, std::chrono::milliseconds::zero()), span};
}

int Deadline::poll_timeout() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
    return static_cast<int>(std::min<decltype(left)>(left, std::numeric_limits<int>::max()));
}

Error timeout_error(const Deadline &deadline, std::string_view what) {
    return {"wait any longer for", std::string(what), fmt::format("{} have passed", deadline.span()),
            ETIMEDOUT};
}

} // namespace singularity
