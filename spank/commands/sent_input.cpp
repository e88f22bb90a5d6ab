// SPDX-License-Identifier: GPL-2.0-or-later
#include "sent_input.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace singularity::commands {

namespace {

constexpr std::size_t kReadSize = 65536;

bool ready(int fd, short events) {
    pollfd one{.fd = fd, .events = events, .revents = 0};
    return poll(&one, 1, 0) == 1;
}

} // namespace

void SentInput::close() {
    if (to_ >= 0)
        ::close(to_);
    to_ = -1;
}

SentInput::~SentInput() {
    close();
    for (const int end : through_)
        if (end >= 0)
            ::close(end);
}

int SentInput::open() {
    close();
    if (through_[0] < 0 && pipe2(through_.data(), O_CLOEXEC) != 0)
        return -1;
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return -1;
    to_ = ends[1];
    if (fcntl(to_, F_SETFL, O_NONBLOCK) == 0)
        return ends[0];
    const int code = errno;
    close();
    ::close(ends[0]);
    errno = code;
    return -1;
}

// Without events poll still tells of a reader that has gone.
pollfd SentInput::wish(int from) const {
    const bool reads = to_ >= 0 && all_sent() && !ended_;
    return {.fd = reads ? from : to_, .events = static_cast<short>(reads ? POLLIN : POLLOUT), .revents = 0};
}

void SentInput::work(int from, const std::function<bool(std::uint64_t first)> &before) {
    pollfd reader{.fd = to_, .events = 0, .revents = 0};
    if (to_ >= 0 && poll(&reader, 1, 0) == 1) // it is gone
        close();
    if (to_ < 0)
        return;
    if (all_sent() && !ended_ && ready(from, POLLIN))
        read_more(from, before);
    while (!all_sent()) {
        const auto at = static_cast<std::size_t>(next_ - first_);
        const ssize_t written = write(to_, kept_.data() + at, kept_.size() - at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno == EAGAIN)
            return;
        if (written < 0) {
            close();
            return;
        }
        next_ += static_cast<std::uint64_t>(written);
    }
    if (ended_)
        close();
}

// Without waiting, whoever else reads `from`: its flags are shared with other programs, and its user may not
// open it anew, as CRIU's pipes are root's.
ssize_t SentInput::take(int from, char *to, std::size_t size) {
    const ssize_t got = splice(from, nullptr, through_[1], nullptr, size, SPLICE_F_NONBLOCK);
    for (ssize_t done = 0; done < got;) {
        const ssize_t part =
            read(through_[0], to + done, static_cast<std::size_t>(got - done)); // it is there
        if (part == 0 || (part < 0 && errno != EINTR))
            return -1;
        done += std::max<ssize_t>(part, 0);
    }
    return got;
}

// What is kept is moved seldom: when half as much again has come.
void SentInput::read_more(int from, const std::function<bool(std::uint64_t first)> &before) {
    if (kept_.size() >= least_ + least_ / 2) {
        const auto over = kept_.size() - least_;
        if (!before(first_ + over))
            return;
        kept_.erase(0, over);
        first_ += over;
    }
    const auto size = kept_.size();
    kept_.resize(size + kReadSize);
    const ssize_t got = take(from, kept_.data() + size, kReadSize);
    const int code = errno;
    kept_.resize(size + (got > 0 ? static_cast<std::size_t>(got) : 0));
    ended_ = got == 0 || (got < 0 && code != EINTR && code != EAGAIN);
}

void SentInput::begin_at(std::uint64_t byte) {
    close();
    kept_.erase(0, static_cast<std::size_t>(std::max(byte, first_) - first_));
    kept_.shrink_to_fit();
    first_ = next_ = 0;
}

} // namespace singularity::commands
