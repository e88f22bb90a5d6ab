// SPDX-License-Identifier: GPL-2.0-or-later
// Writes records to a pipe or a socket, or to a file that is mapped.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proxy/image/go_on.hpp"
#include "proxy/image/mapped_file.hpp"
#include "proxy/image/record.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace singularity::image {

class Output;

class Writer {
  public:
    // The descriptor stays the caller's. It does not block while this lives.
    Writer(int fd, const Deadline &deadline, GoOn go_on);
    // To the file that is mapped there, from its begin.
    Writer(MappedFile &file, GoOn go_on);
    ~Writer();
    Writer(const Writer &) = delete;
    Writer &operator=(const Writer &) = delete;
    Writer(Writer &&) = delete;
    Writer &operator=(Writer &&) = delete;

    // Room for a payload, to be filled by the caller: without end() it is no record. Valid until the next
    // call.
    [[nodiscard]] Expected<std::span<std::byte>> begin(RecordType type, std::size_t size);
    void end();

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

    // Everything is out of this process; a file ends here.
    [[nodiscard]] Expected<void> flush();

    [[nodiscard]] std::uint64_t records() const { return index_; }
    [[nodiscard]] std::uint64_t bytes() const;

  private:
    std::unique_ptr<Output> output_;
    std::span<std::byte> record_; // that begin() has made room for
    RecordHead head_;
    std::uint64_t index_ = 0;
};

} // namespace singularity::image
