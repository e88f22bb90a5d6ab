// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/image/reader.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

namespace singularity::image {

namespace {
constexpr int kReadLook = 200;

std::unexpected<Error> broken(std::uint64_t index, std::string why) {
    return failure("read", fmt::format("record {} of the device image", index), std::move(why), EPROTO);
}
} // namespace

std::string Record::name() const { return fmt::format("record {} ({})", index, record_name(type)); }

std::unexpected<Error> Record::wrong(std::string why) const {
    return failure("accept", name() + " of the device image", std::move(why), EPROTO);
}

Reader::Reader(int fd, const Deadline &deadline, GoOn go_on)
    : fd_(fd), flags_before_(fcntl(fd, F_GETFL)), deadline_(deadline), go_on_(std::move(go_on)) {
    if (flags_before_ >= 0)
        static_cast<void>(fcntl(fd_, F_SETFL, flags_before_ | O_NONBLOCK));
}

Reader::~Reader() {
    if (flags_before_ >= 0)
        static_cast<void>(fcntl(fd_, F_SETFL, flags_before_));
}

Expected<Record> Reader::next() {
    RecordHead head{};
    if (auto done = read_all(std::as_writable_bytes(std::span(&head, 1)), "its head"); !done)
        return propagate(done);
    const auto type = static_cast<RecordType>(head.type);
    if (head.size > kMostPayload)
        return broken(index_,
                      fmt::format("it says that it has {} bytes; {} are allowed: the image is damaged",
                                  head.size, kMostPayload));
    payload_.resize(head.size);
    if (auto done = read_all(payload_, record_name(type)); !done)
        return propagate(done);
    if (check_of(head, payload_) != head.check)
        return broken(index_, fmt::format("the check sum of this {} is wrong: the image is damaged",
                                          record_name(type)));
    if (head.index != index_)
        return broken(index_, fmt::format("it is record {} of its stream", head.index));
    return Record{.type = type, .index = index_++, .payload = payload_};
}

Expected<Record> Reader::next(RecordType wanted) {
    auto record = next();
    if (record && record->type != wanted)
        return record->wrong(fmt::format("a {} was expected here", record_name(wanted)));
    return record;
}

Expected<void> Reader::pieces(RecordType type, std::uint64_t size,
                              const std::function<Expected<void>(std::span<const std::byte>)> &take) {
    while (size != 0) {
        auto record = next(type);
        if (!record)
            return propagate(record);
        if (record->payload.empty() || record->payload.size() > size)
            return record->wrong(
                fmt::format("it has {} bytes of {} that are missing", record->payload.size(), size));
        size -= record->payload.size();
        if (auto taken = take(record->payload); !taken)
            return taken;
    }
    return {};
}

Expected<void> Reader::read_all(std::span<std::byte> bytes, const char *what) {
    while (!bytes.empty()) {
        if (auto wanted = go_on_(bytes_); !wanted)
            return wanted;
        const ssize_t got = read(fd_, bytes.data(), bytes.size());
        if (got > 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(got));
            bytes_ += static_cast<std::uint64_t>(got);
            continue;
        }
        if (got == 0)
            return broken(index_, fmt::format("the stream ends in {}: the image is truncated", what));
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return std::unexpected(errno_error("read", "the device image"));
        if (deadline_.expired())
            return std::unexpected(timeout_error(deadline_, "the writer of the device image"));
        pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
        // An error shows in the next read.
        static_cast<void>(poll(&waiting, 1, std::min(kReadLook, deadline_.poll_timeout())));
    }
    return {};
}

} // namespace singularity::image
