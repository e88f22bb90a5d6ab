// SPDX-License-Identifier: GPL-2.0-or-later
// The windows of device address space: which client process has which. One process has one session here, or
// several in a row; a window belongs to one session at a time.
#pragma once

#include "common/error.hpp"
#include "proxy/channel/packet.hpp"

#include <array>
#include <cstdint>
#include <map>

namespace singularity::proxyd {

// Whether a window has a slice for this device of a process that has so many.
[[nodiscard]] bool has_slice(std::uint64_t window_size, std::uint32_t devices, std::uint64_t ordinal);

// Why a window is not granted.
enum class WindowRefusal : std::uint8_t { invalid, taken, none_left };

class WindowArea {
  public:
    // Windows begin at begin + n * window_size; at least one must fit. Pages of a window are 2 MiB or more.
    [[nodiscard]] static Expected<WindowArea> create(const channel::WindowArea &area);

    [[nodiscard]] const channel::WindowArea &area() const { return area_; }
    // wish 0: one of the device's, see channel::window_of(), and any where these are taken. The begin of the
    // window, which several sessions of one process share.
    [[nodiscard]] std::expected<std::uint64_t, WindowRefusal>
    take(std::uint64_t wish, const std::array<std::uint64_t, 2> &process, const channel::NodeDevice &device);
    // For one more session of a process that has the window already, or has it alone: several of its devices
    // can be one here. Whether that can be.
    [[nodiscard]] bool share(std::uint64_t window, const std::array<std::uint64_t, 2> &process);
    void give_back(std::uint64_t window);

  private:
    [[nodiscard]] bool is_window(std::uint64_t window) const;
    explicit WindowArea(const channel::WindowArea &area) : area_(area) {}

    channel::WindowArea area_;
    std::uint64_t next_ = 0; // a window that was given back is used again as late as possible
    struct Taken {
        std::array<std::uint64_t, 2> process{};
        unsigned sessions = 1;
    };
    std::map<std::uint64_t, Taken> taken_;
};

} // namespace singularity::proxyd
