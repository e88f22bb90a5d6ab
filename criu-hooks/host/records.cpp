// SPDX-License-Identifier: GPL-2.0-or-later
#include "records.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr std::uint32_t kCommon = 0x54564319;  // images
constexpr std::uint32_t kService = 0x55105940; // statistics
constexpr std::size_t kLargestRecord = std::size_t{16} << 20U;
constexpr std::size_t kReadAhead = std::size_t{256} << 10U;

} // namespace

Expected<RecordReader> RecordReader::open(int directory, const std::string &name, Magic magic) {
    UniqueFd file(openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file)
        return std::unexpected(errno_error("open", name));
    struct stat status{};
    if (fstat(file.get(), &status) != 0)
        return std::unexpected(errno_error("examine", name));
    if (!S_ISREG(status.st_mode))
        return failure("read", name, "it is no regular file");
    RecordReader reader(std::move(file), name, static_cast<std::uint64_t>(status.st_size));
    std::array<std::uint32_t, 2> head{};
    auto got = reader.read_up_to(std::as_writable_bytes(std::span(head)));
    if (!got)
        return propagate(got);
    const std::uint32_t family = magic == Magic::kStatistics ? kService : kCommon;
    if (*got != sizeof(head) || head[0] != family || head[1] != static_cast<std::uint32_t>(magic))
        return failure("read", name, "it does not begin as CRIU's images of this kind do");
    return reader;
}

Expected<std::size_t> RecordReader::read_up_to(std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size()) {
        if (at_ == buffer_.size()) {
            auto more = refill();
            if (!more)
                return propagate(more);
            if (!*more)
                break;
        }
        const std::size_t part = std::min(out.size() - done, buffer_.size() - at_);
        std::memcpy(out.data() + done, buffer_.data() + at_, part);
        at_ += part;
        done += part;
    }
    return done;
}

Expected<bool> RecordReader::refill() {
    buffer_.resize(kReadAhead);
    at_ = 0;
    ssize_t got = 0;
    while ((got = read(file_.get(), buffer_.data(), buffer_.size())) < 0 && errno == EINTR) {
    }
    buffer_.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0)
        return std::unexpected(errno_error("read", name_));
    return got > 0;
}

Expected<std::optional<Bytes>> RecordReader::next() {
    std::uint32_t size = 0;
    auto got = read_up_to(std::as_writable_bytes(std::span(&size, 1)));
    if (!got)
        return propagate(got);
    if (*got == 0)
        return std::optional<Bytes>();
    if (*got != sizeof(size))
        return failure("read", name_, "it is cut off");
    if (size > kLargestRecord)
        return failure("read", name_,
                       fmt::format("a message in it claims to have {} bytes, at most {} expected", size,
                                   kLargestRecord));
    if (size > size_)
        return failure("read", name_, "it is cut off");
    message_.resize(size);
    got = read_up_to(message_);
    if (!got)
        return propagate(got);
    if (*got != size)
        return failure("read", name_, "it is cut off");
    return std::optional<Bytes>(message_);
}

Expected<std::optional<std::string>> first_record(int directory, const std::string &name, Magic magic) {
    auto reader = RecordReader::open(directory, name, magic);
    if (!reader)
        return propagate(reader);
    auto message = reader->next();
    if (!message)
        return propagate(message);
    const std::optional<Bytes> &bytes = *message;
    if (!bytes)
        return std::nullopt;
    return std::string(reinterpret_cast<const char *>(bytes->data()), bytes->size());
}

std::string framed(Magic magic, const std::vector<std::string> &messages) {
    const auto number = [](std::uint32_t value) {
        return std::string(reinterpret_cast<const char *>(&value), sizeof(value));
    };
    std::string file =
        number(magic == Magic::kStatistics ? kService : kCommon) + number(static_cast<std::uint32_t>(magic));
    for (const std::string &message : messages)
        file += number(static_cast<std::uint32_t>(message.size())) + message;
    return file;
}

} // namespace singularity::host
