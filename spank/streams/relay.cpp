// SPDX-License-Identifier: GPL-2.0-or-later
#include "relay.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/ioctl.h>
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

bool Pump::idle() const {
    return done() || (held_.empty() && (left_to_read_ == 0 || !ready(from_.get(), POLLIN)));
}

void Pump::watch(std::vector<pollfd> &watched) const {
    if (done())
        return;
    // Without events poll still tells of a reader that has gone.
    watched.push_back(
        {.fd = to_.get(), .events = static_cast<short>(held_.empty() ? 0 : POLLOUT), .revents = 0});
    if (may_read())
        watched.push_back({.fd = from_.get(), .events = POLLIN, .revents = 0});
}

void Pump::read_no_more_than_there_is() {
    int bytes = 0;
    if (!done() && ioctl(from_.get(), FIONREAD, &bytes) == 0 && bytes >= 0)
        left_to_read_ = static_cast<std::size_t>(bytes);
}

void Pump::pass_on_what_there_is() {
    int bytes = 0;
    if (done() || ioctl(from_.get(), FIONREAD, &bytes) != 0 || bytes < 0)
        return;
    // Each turn reads, and most of them as much as can be read at a time.
    for (auto turns = static_cast<std::size_t>(bytes) / kReadSize + 2; turns > 0 && !idle(); --turns)
        work();
}

void Pump::work() {
    if (done())
        return;
    pollfd reader{.fd = to_.get(), .events = 0, .revents = 0};
    if (poll(&reader, 1, 0) == 1 && (reader.revents & (POLLERR | POLLNVAL)) != 0)
        return close(); // so the writer at the other end learns it by SIGPIPE
    if (may_read() && ready(from_.get(), POLLIN)) {
        held_.resize(std::min(kReadSize, left_to_read_.value_or(kReadSize)));
        const ssize_t got = read(from_.get(), held_.data(), held_.size());
        held_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        if (left_to_read_)
            *left_to_read_ -= held_.size();
        // EIO: the last program has left the terminal.
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
            return close();
        skip();
    }
    while (!held_.empty() && ready(to_.get(), POLLOUT)) {
        const ssize_t written = write(to_.get(), held_.data(), std::min(held_.size(), kWriteSize));
        if (written < 0 && errno != EINTR && errno != EAGAIN)
            return close();
        if (written < 0)
            return;
        held_.erase(0, static_cast<std::size_t>(written));
        written_ += static_cast<std::uint64_t>(written);
    }
}

// Who has the pipe open for reading sees what nobody has read, and does not keep its writer from seeing that
// nobody else reads it: there is none any more.
void Pump::close() {
    held_.clear();
    from_.reset();
    if (counts_ && to_)
        left_ = UniqueFd(
            open(("/proc/self/fd/" + std::to_string(to_.get())).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    to_.reset();
}

void Pump::count(std::uint64_t had) {
    counts_ = true;
    skipping_ = written_ = had;
}

void Pump::skip() {
    const auto now = std::min<std::uint64_t>(skipping_, held_.size());
    held_.erase(0, static_cast<std::size_t>(now));
    skipping_ -= now;
}

std::optional<std::uint64_t> Pump::taken() const {
    const int pipe = to_ ? to_.get() : left_.get();
    int unread = 0;
    if (pipe < 0 || ioctl(pipe, FIONREAD, &unread) != 0 || unread < 0)
        return std::nullopt;
    return written_ - std::min(written_, static_cast<std::uint64_t>(unread));
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
