// SPDX-License-Identifier: GPL-2.0-or-later
// Writes records to a descriptor: a file, a pipe or a socket.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proxy/image/record.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace singularity::image {

// Whether the work is to go on; an error says why not. Asked at least once for each piece.
using GoOn = std::function<Expected<void>(std::uint64_t bytes)>;

class Writer {
  public:
    // The descriptor stays the caller's. It does not block while this lives.
    Writer(int fd, const Deadline &deadline, GoOn go_on);
    ~Writer();
    Writer(const Writer &) = delete;
    Writer &operator=(const Writer &) = delete;
    Writer(Writer &&) = delete;
    Writer &operator=(Writer &&) = delete;

    // The payload is the parts one behind the other.
    [[nodiscard]] Expected<void> put(RecordType type, std::span<const std::span<const std::byte>> parts);
    template <class Fixed, class... Spans>
    [[nodiscard]] Expected<void> put(RecordType type, const Fixed &fixed, const Spans &...tail) {
        const std::array<std::span<const std::byte>, 1 + sizeof...(tail)> parts{
            std::as_bytes(std::span(&fixed, 1)), std::as_bytes(std::span(tail))...};
        return put(type, std::span<const std::span<const std::byte>>(parts));
    }
    // Bytes in pieces, each a record of this type.
    [[nodiscard]] Expected<void> put_pieces(RecordType type, std::span<const std::byte> bytes);

    // Everything is out of this process.
    [[nodiscard]] Expected<void> flush();

    [[nodiscard]] std::uint64_t records() const { return index_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  private:
    [[nodiscard]] Expected<void> write_all(std::span<const std::byte> bytes);

    int fd_;
    int flags_before_;
    Deadline deadline_;
    GoOn go_on_;
    std::vector<std::byte> held_; // small records together
    std::vector<std::byte> payload_;
    std::uint64_t index_ = 0;
    std::uint64_t bytes_ = 0;
};

} // namespace singularity::image
