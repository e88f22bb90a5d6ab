// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/log.hpp"

#include "common/text.hpp"

#include <atomic>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace singularity::log {
namespace {

std::atomic<Sink> current_sink{nullptr};
std::atomic<Level> threshold{Level::kInfo};

spdlog::level::level_enum spdlog_level(Level level) {
    switch (level) {
    case Level::kError:
        return spdlog::level::err;
    case Level::kWarning:
        return spdlog::level::warn;
    case Level::kInfo:
        return spdlog::level::info;
    case Level::kDebug:
        break;
    }
    return spdlog::level::debug;
}

// A logger of our own, outside spdlog's registry, whose destructor would run at exit. This one is never
// destroyed: other threads may still log then.
spdlog::logger &stderr_logger() {
    static auto *const logger = [] {
        auto made = std::make_unique<spdlog::logger>("singularity",
                                                     std::make_shared<spdlog::sinks::stderr_sink_mt>());
        made->set_level(spdlog::level::trace);
        made->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l: %v");
        return made.release();
    }();
    return *logger;
}

void deliver(Level level, std::string_view line) {
    if (Sink const sink = current_sink.load(std::memory_order_acquire); sink != nullptr)
        sink(level, line);
    else
        stderr_logger().log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
}

} // namespace

void set_sink(Sink sink) noexcept { current_sink.store(sink, std::memory_order_release); }

void set_level(Level least_important) noexcept {
    threshold.store(least_important, std::memory_order_relaxed);
}

bool enabled(Level level) noexcept { return level <= threshold.load(std::memory_order_relaxed); }

void Channel::write(Level level, fmt::string_view format, fmt::format_args args) const noexcept {
    if (!enabled(level))
        return;
    try {
        std::string line = fmt::format("singularity: {}: ", component_);
        if (job_id_)
            fmt::format_to(std::back_inserter(line), "job {}: ", *job_id_);
        try {
            fmt::vformat_to(std::back_inserter(line), format, args);
        } catch (const std::exception &failure) {
            fmt::format_to(std::back_inserter(line), "(an event of this place could not be formatted: {})",
                           failure.what());
        }
        deliver(level, escaped(line));
    } catch (...) {
        // Out of memory, or a sink that throws: what is left needs neither.
        static_cast<void>(std::fputs("singularity: log: an event was lost\n", stderr));
    }
}

} // namespace singularity::log
