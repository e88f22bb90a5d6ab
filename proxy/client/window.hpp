// SPDX-License-Identifier: GPL-2.0-or-later
// The process's window of addresses: reserved here so that nothing else of the program ever lies in it, cut
// into one part for shared host memory and one for each device.
#pragma once

#include "common/error.hpp"
#include "ranges.hpp"

#include <cstddef>
#include <cstdint>

namespace singularity::client {

// What a window of that many devices looks like.
struct WindowPlan {
    Range whole;
    std::uint64_t slice = 0; // of each: first the host's, then the devices'

    [[nodiscard]] Range host() const { return {.address = whole.address, .size = slice}; }
    [[nodiscard]] Range device(std::size_t index) const {
        return {.address = whole.address + slice * (index + 1), .size = slice};
    }
    // 0: the host's, n + 1: device n's. Only for addresses in the window.
    [[nodiscard]] std::size_t slice_of(std::uint64_t address) const {
        return static_cast<std::size_t>((address - whole.address) / slice);
    }
};
[[nodiscard]] WindowPlan plan_window(Range whole, std::size_t devices);

// The addresses of one window, kept free for it (PROT_NONE). An error, code EEXIST: something lies there.
[[nodiscard]] Expected<void> reserve_window(Range whole);
void release_window(Range whole) noexcept;

} // namespace singularity::client
