// SPDX-License-Identifier: GPL-2.0-or-later
#include "window_area.hpp"

#include <array>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {
constexpr std::uint64_t kUnit = std::uint64_t{2} << 20; // the largest page that a slab needs
constexpr std::uint64_t kEndOfUser = std::uint64_t{1} << 47;
} // namespace

bool has_slice(std::uint64_t window_size, std::uint32_t devices, std::uint64_t ordinal) {
    return ordinal < devices && channel::slice_size(window_size, devices) <= window_size / (devices + 1ULL);
}

Expected<WindowArea> WindowArea::create(const channel::WindowArea &area) {
    const auto refuse = [&area](std::string why) {
        return failure("use the window area", fmt::format("{:#x}-{:#x}", area.begin, area.end),
                       std::move(why), EINVAL);
    };
    if (area.begin == 0 || area.begin % kUnit != 0 || area.end % kUnit != 0)
        return refuse("it must begin and end at multiples of 2 MiB, behind 0");
    if (area.end <= area.begin || area.end > kEndOfUser)
        return refuse("its end must lie behind its begin and not behind 0x800000000000");
    if (area.window_size == 0 || area.window_size % kUnit != 0 || area.window_size > area.end - area.begin)
        return refuse(fmt::format("a window of {:#x} bytes must be a multiple of 2 MiB and fit in it",
                                  area.window_size));
    return WindowArea(area);
}

std::expected<std::uint64_t, WindowRefusal> WindowArea::take(std::uint64_t wish,
                                                             const std::array<std::uint64_t, 2> &process,
                                                             const channel::NodeDevice &device) {
    if (wish != 0) {
        if (!is_window(wish))
            return std::unexpected(WindowRefusal::invalid);
        if (!share(wish, process))
            return std::unexpected(WindowRefusal::taken);
        return wish;
    }
    for (const auto &whose : {device, channel::NodeDevice{}})
        for (std::uint64_t tried = 0; tried < area_.windows(); ++tried) {
            const auto window = channel::window_of(area_, whose, next_++);
            if (taken_.try_emplace(window, Taken{.process = process}).second)
                return window;
        }
    return std::unexpected(WindowRefusal::none_left);
}

bool WindowArea::is_window(std::uint64_t window) const {
    return window >= area_.begin && window <= area_.end - area_.window_size &&
           (window - area_.begin) % area_.window_size == 0;
}

bool WindowArea::share(std::uint64_t window, const std::array<std::uint64_t, 2> &process) {
    if (!is_window(window))
        return false;
    constexpr std::array<std::uint64_t, 2> kNobody{}; // has not said who it is
    const auto [entry, alone] = taken_.try_emplace(window);
    if (alone) {
        entry->second.process = process;
        return true;
    }
    if (entry->second.process != process || process == kNobody)
        return false;
    ++entry->second.sessions;
    return true;
}

void WindowArea::give_back(std::uint64_t window) {
    const auto found = taken_.find(window);
    if (found != taken_.end() && --found->second.sessions == 0)
        taken_.erase(found);
}

} // namespace singularity::proxyd
