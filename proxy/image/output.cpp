// SPDX-License-Identifier: GPL-2.0-or-later
#include "output.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace singularity::image {

namespace {
constexpr std::size_t kHold = std::size_t{256} << 10;
// Whoever asks whether to go on is asked at least so often.
constexpr int kLook = 200;
} // namespace

StreamOutput::StreamOutput(int fd, const Deadline &deadline, GoOn go_on)
    : fd_(fd), flags_before_(fcntl(fd, F_GETFL)), deadline_(deadline), go_on_(std::move(go_on)) {
    if (flags_before_ >= 0)
        static_cast<void>(fcntl(fd_, F_SETFL, flags_before_ | O_NONBLOCK));
}

StreamOutput::~StreamOutput() {
    if (flags_before_ >= 0)
        static_cast<void>(fcntl(fd_, F_SETFL, flags_before_));
}

Expected<std::span<std::byte>> StreamOutput::room(std::size_t size) {
    if (held_ >= kHold)
        if (auto done = finish(); !done)
            return propagate(done);
    if (buffer_.size() < held_ + size)
        buffer_.resize(held_ + size);
    return std::span(buffer_).subspan(held_, size);
}

Expected<void> StreamOutput::finish() {
    std::span<const std::byte> left(buffer_.data(), std::exchange(held_, 0));
    while (!left.empty()) {
        if (auto wanted = go_on_(bytes_); !wanted)
            return wanted;
        const ssize_t written = write(fd_, left.data(), left.size());
        if (written >= 0) {
            left = left.subspan(static_cast<std::size_t>(written));
            bytes_ += static_cast<std::uint64_t>(written);
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return std::unexpected(errno_error("write", "the device image"));
        if (deadline_.expired())
            return std::unexpected(timeout_error(deadline_, "the reader of the device image"));
        pollfd waiting{.fd = fd_, .events = POLLOUT, .revents = 0};
        // An error shows in the next write.
        static_cast<void>(poll(&waiting, 1, std::min(kLook, deadline_.poll_timeout())));
    }
    return {};
}

Expected<std::span<std::byte>> FileOutput::room(std::size_t size) {
    if (auto wanted = go_on_(end_); !wanted)
        return propagate(wanted);
    if (const auto left = file_.memory().size() - end_; left < size)
        if (auto grown = file_.grow(size - left); !grown)
            return propagate(grown);
    return file_.memory().subspan(end_, size);
}

} // namespace singularity::image
