// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/image/writer.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

namespace singularity::image {

namespace {
constexpr std::size_t kHold = std::size_t{256} << 10;
// Whoever asks whether to go on is asked at least so often.
constexpr int kLook = 200;
} // namespace

Writer::Writer(int fd, const Deadline &deadline, GoOn go_on)
    : fd_(fd), flags_before_(fcntl(fd, F_GETFL)), deadline_(deadline), go_on_(std::move(go_on)) {
    if (flags_before_ >= 0)
        static_cast<void>(fcntl(fd_, F_SETFL, flags_before_ | O_NONBLOCK));
}

Writer::~Writer() {
    if (flags_before_ >= 0)
        static_cast<void>(fcntl(fd_, F_SETFL, flags_before_));
}

Expected<void> Writer::put(RecordType type, std::span<const std::span<const std::byte>> parts) {
    payload_.clear();
    for (const auto &part : parts)
        payload_.insert(payload_.end(), part.begin(), part.end());
    if (payload_.size() > kMostPayload)
        return failure("write", fmt::format("record {} ({})", index_, record_name(type)),
                       fmt::format("it has {} bytes; {} fit in a record", payload_.size(), kMostPayload),
                       EMSGSIZE);
    RecordHead head{.type = std::to_underlying(type), .index = index_++, .size = payload_.size()};
    head.check = check_of(head, payload_);
    const auto bytes = std::as_bytes(std::span(&head, 1));
    held_.insert(held_.end(), bytes.begin(), bytes.end());
    held_.insert(held_.end(), payload_.begin(), payload_.end());
    return held_.size() >= kHold ? flush() : Expected<void>{};
}

Expected<void> Writer::put_pieces(RecordType type, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const auto piece = bytes.first(std::min(bytes.size(), kPiece));
        const std::array parts{piece};
        if (auto done = put(type, std::span<const std::span<const std::byte>>(parts)); !done)
            return done;
        bytes = bytes.subspan(piece.size());
    }
    return {};
}

Expected<void> Writer::flush() {
    auto done = write_all(held_);
    held_.clear();
    return done;
}

Expected<void> Writer::write_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        if (auto wanted = go_on_(bytes_); !wanted)
            return wanted;
        const ssize_t written = write(fd_, bytes.data(), bytes.size());
        if (written >= 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(written));
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

} // namespace singularity::image
