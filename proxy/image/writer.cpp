// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/image/writer.hpp"

#include "output.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace singularity::image {

Writer::Writer(int fd, const Deadline &deadline, GoOn go_on)
    : output_(std::make_unique<StreamOutput>(fd, deadline, std::move(go_on))) {}

Writer::Writer(MappedFile &file, GoOn go_on)
    : output_(std::make_unique<FileOutput>(file, std::move(go_on))) {}

Writer::~Writer() = default;

std::uint64_t Writer::bytes() const { return output_->bytes(); }

Expected<std::span<std::byte>> Writer::begin(RecordType type, std::size_t size) {
    if (size > kMostPayload)
        return failure("write", fmt::format("record {} ({})", index_, record_name(type)),
                       fmt::format("it has {} bytes; {} fit in a record", size, kMostPayload), EMSGSIZE);
    auto room = output_->room(sizeof(RecordHead) + size);
    if (!room)
        return room;
    head_ = {.type = std::to_underlying(type), .index = index_, .size = size};
    record_ = *room;
    return record_.subspan(sizeof(RecordHead));
}

void Writer::end() {
    head_.check = check_of(head_, record_.subspan(sizeof(RecordHead)));
    std::ranges::copy(std::as_bytes(std::span(&head_, 1)), record_.begin());
    output_->keep(record_.size());
    ++index_;
}

Expected<void> Writer::put(RecordType type, std::span<const std::span<const std::byte>> parts) {
    std::size_t size = 0;
    for (const auto &part : parts)
        size += part.size();
    auto room = begin(type, size);
    if (!room)
        return propagate(room);
    auto to = room->begin();
    for (const auto &part : parts)
        to = std::ranges::copy(part, to).out;
    end();
    return {};
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

Expected<void> Writer::flush() { return output_->finish(); }

} // namespace singularity::image
