// SPDX-License-Identifier: GPL-2.0-or-later
// One line per event:
//
//     singularity: <component>: message
//     singularity: <component>: job 4711: message
//
// A component of the program keeps one channel and writes to it from any thread:
//
//     constexpr log::Channel kLog("agent");
//     kLog.info("listening on {}", path);
//     kLog.for_job(4711).error("{}", error.message());
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace singularity::log {

enum class Level : std::uint8_t { kError, kWarning, kInfo, kDebug };

// The words that the configuration and the log use, most important first.
inline constexpr std::array<std::pair<std::string_view, Level>, 4> kLevels{{
    {"error", Level::kError},
    {"warning", Level::kWarning},
    {"info", Level::kInfo},
    {"debug", Level::kDebug},
}};

// Receives whole lines without a line end or any other control character. Called by several threads at once.
using Sink = void (*)(Level level, std::string_view line);

// Where lines go from now on: inside Slurm to a function that calls slurm_info() and the like. Without one
// (nullptr) they go to stderr, with the time and the level in front, since nothing there adds them.
void set_sink(Sink sink) noexcept;

// Events less important than this are dropped before they are formatted. kInfo at the start.
void set_level(Level least_important) noexcept;
[[nodiscard]] bool enabled(Level level) noexcept;

class Channel {
  public:
    // The name must outlive the channel; it is meant to be a literal.
    constexpr explicit Channel(std::string_view component) noexcept : component_(component) {}

    [[nodiscard]] constexpr Channel for_job(std::uint32_t job_id) const noexcept {
        Channel channel(*this);
        channel.job_id_ = job_id;
        return channel;
    }

    template <class... Args>
    void error(fmt::format_string<Args...> format, Args &&...args) const noexcept {
        write(Level::kError, format, fmt::make_format_args(args...));
    }
    template <class... Args>
    void warning(fmt::format_string<Args...> format, Args &&...args) const noexcept {
        write(Level::kWarning, format, fmt::make_format_args(args...));
    }
    template <class... Args>
    void info(fmt::format_string<Args...> format, Args &&...args) const noexcept {
        write(Level::kInfo, format, fmt::make_format_args(args...));
    }
    template <class... Args>
    void debug(fmt::format_string<Args...> format, Args &&...args) const noexcept {
        write(Level::kDebug, format, fmt::make_format_args(args...));
    }

  private:
    // Logging is done in destructors and at C edges, so nothing may leave it: an event that cannot be
    // formatted is replaced by a line which says so.
    void write(Level level, fmt::string_view format, fmt::format_args args) const noexcept;

    std::string_view component_;
    std::optional<std::uint32_t> job_id_;
};

} // namespace singularity::log
