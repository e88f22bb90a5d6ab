// SPDX-License-Identifier: GPL-2.0-or-later
#include "log_file.hpp"

#include "common/log.hpp"
#include "common/unique_fd.hpp"

#include <array>
#include <atomic>
#include <ctime>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity::proxyd {

namespace {

std::atomic<int> log_descriptor{-1};

std::string_view name_of(log::Level level) {
    for (const auto &[name, known] : log::kLevels)
        if (known == level)
            return name;
    return "?";
}

// One write each, so that lines of several threads stay whole.
void write_line(log::Level level, std::string_view line) {
    const auto now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 32> when{};
    std::strftime(when.data(), when.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    const auto whole = fmt::format("{} {}: {}\n", when.data(), name_of(level), line);
    const auto put = [&whole](int fd) {
        return std::cmp_equal(write(fd, whole.data(), whole.size()), whole.size());
    };
    // A full disk must not silence what is wrong.
    const bool kept = put(log_descriptor.load(std::memory_order_relaxed));
    if (!kept || level <= log::Level::kWarning)
        static_cast<void>(put(STDERR_FILENO));
}

} // namespace

Expected<void> log_to(const std::filesystem::path &path) {
    constexpr mode_t kMode = 0600;
    UniqueFd opened(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kMode));
    if (!opened)
        return std::unexpected(errno_error("open", path.native()));
    log_descriptor.store(opened.release(), std::memory_order_relaxed); // as long as the process
    log::set_sink(&write_line);
    return {};
}

} // namespace singularity::proxyd
