// SPDX-License-Identifier: GPL-2.0-or-later
#include "window.hpp"

#include "proxy/channel/packet.hpp"

#include <bit>
#include <cerrno>

#include <fmt/format.h>
#include <sys/mman.h>

namespace singularity::client {

namespace {

void *place_at(std::uint64_t address) { return std::bit_cast<void *>(address); }

} // namespace

WindowPlan plan_window(Range whole, std::size_t devices) {
    return {.whole = whole, .slice = channel::slice_size(whole.size, devices)};
}

Expected<void> reserve_window(Range whole) {
    void *const wanted = place_at(whole.address);
    void *const got = mmap(wanted, whole.size, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED)
        return std::unexpected(errno_error(
            "reserve", fmt::format("{} GiB of addresses at {:#x}", whole.size >> 30, whole.address)));
    if (got != wanted) {
        // A kernel before 4.17 takes the address as a hint only.
        munmap(got, whole.size);
        return failure("reserve", fmt::format("addresses at {:#x}", whole.address), "something lies there",
                       EEXIST);
    }
    return {};
}

void release_window(Range whole) noexcept { munmap(place_at(whole.address), whole.size); }

} // namespace singularity::client
