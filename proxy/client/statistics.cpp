// SPDX-License-Identifier: GPL-2.0-or-later
#include "statistics.hpp"

#include "log.hpp"
#include "process.hpp"
#include "proxy/driver-api/api.hpp"
#include "proxy/libcuda/entry.hpp"

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity::client {

namespace {

constexpr mode_t kMode = 0600;

// The format is proxy/launcher's: lines of a name and a number.
std::string statistics_text() {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;
    for (const auto &session : process().sessions) {
        const auto statistics = session->end().statistics();
        calls += statistics.records;
        bytes += statistics.bytes;
    }
    auto text = fmt::format("calls {}\nbytes {}\n", calls, bytes);
    for (const auto &call : libcuda::unsupported_calls())
        text += fmt::format("unsupported {} {}\n", driver_api::api_info(call.id).symbol, call.calls);
    return text;
}

void write_now() {
    const char *const where = std::getenv("SINGULARITY_PROXY_STATS");
    if (where == nullptr || process().state.load() != State::ready)
        return;
    const int fd = open(where, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kMode);
    const auto text = statistics_text();
    // One write: lines of several processes do not mix.
    if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        kLog.warning("{}", errno_error("write statistics to", where).message());
    if (fd >= 0)
        close(fd);
}

} // namespace

void write_statistics_at_exit() {
    if (std::getenv("SINGULARITY_PROXY_STATS") != nullptr && std::atexit(write_now) != 0)
        kLog.warning("cannot write statistics: the C library takes no more exit handlers");
}

} // namespace singularity::client
