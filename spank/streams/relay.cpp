// SPDX-License-Identifier: GPL-2.0-or-later
#include "relay.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <unistd.h>

namespace singularity::spank {

namespace {

constexpr std::size_t kReadSize = 65536;
// A pipe that is ready for writing takes so much without waiting (pipe(7), PIPE_BUF); a terminal rather less.
constexpr std::size_t kWriteSize = 1024;

bool ready(int fd, short events) {
    pollfd one{.fd = fd, .events = events, .revents = 0};
    return poll(&one, 1, 0) == 1;
}

} // namespace

bool Pump::idle() const { return done() || (held_.empty() && !ready(from_.get(), POLLIN)); }

void Pump::watch(std::vector<pollfd> &watched) const {
    if (done())
        return;
    // Without events poll still tells of a reader that has gone.
    watched.push_back(
        {.fd = to_.get(), .events = static_cast<short>(held_.empty() ? 0 : POLLOUT), .revents = 0});
    if (held_.empty())
        watched.push_back({.fd = from_.get(), .events = POLLIN, .revents = 0});
}

void Pump::work() {
    if (done())
        return;
    pollfd reader{.fd = to_.get(), .events = 0, .revents = 0};
    if (poll(&reader, 1, 0) == 1 && (reader.revents & (POLLERR | POLLNVAL)) != 0)
        return close(); // so the writer at the other end learns it by SIGPIPE
    if (held_.empty() && ready(from_.get(), POLLIN)) {
        held_.resize(kReadSize);
        const ssize_t got = read(from_.get(), held_.data(), held_.size());
        held_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        // EIO: the last program has left the terminal.
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
            return close();
    }
    while (!held_.empty() && ready(to_.get(), POLLOUT)) {
        const ssize_t written = write(to_.get(), held_.data(), std::min(held_.size(), kWriteSize));
        if (written < 0 && errno != EINTR && errno != EAGAIN)
            return close();
        if (written < 0)
            return;
        held_.erase(0, static_cast<std::size_t>(written));
    }
}

void Pump::close() {
    held_.clear();
    from_.reset();
    to_.reset();
}

bool pump_and_poll(std::vector<Pump> &pumps, std::vector<pollfd> &others, int timeout_ms) {
    std::vector<pollfd> watched = others;
    for (const auto &pump : pumps)
        pump.watch(watched);
    if (poll(watched.data(), watched.size(), timeout_ms) < 0 && errno != EINTR)
        return false;
    std::copy_n(watched.begin(), others.size(), others.begin());
    for (auto &pump : pumps)
        pump.work();
    return true;
}

} // namespace singularity::spank
