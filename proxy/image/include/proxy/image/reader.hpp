// SPDX-License-Identifier: GPL-2.0-or-later
// Reads records from a descriptor. What it hands out is whole and as it was written; what the numbers in it
// mean is for the caller to check.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proxy/image/go_on.hpp"
#include "proxy/image/record.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace singularity::image {

struct Record {
    RecordType type{};
    std::uint64_t index = 0;
    std::span<const std::byte> payload; // until the next one is read

    [[nodiscard]] std::string name() const;
    // For errors of whoever looks into it.
    [[nodiscard]] std::unexpected<Error> wrong(std::string why) const;
};

// The struct at a payload's begin; the rest is `tail`.
template <class Fixed>
[[nodiscard]] Expected<Fixed> fixed_of(const Record &record, std::span<const std::byte> *tail = nullptr) {
    static_assert(std::is_trivially_copyable_v<Fixed>);
    if (record.payload.size() < sizeof(Fixed) || (tail == nullptr && record.payload.size() != sizeof(Fixed)))
        return record.wrong("it has " + std::to_string(record.payload.size()) + " bytes; its struct has " +
                            std::to_string(sizeof(Fixed)));
    Fixed fixed;
    std::memcpy(&fixed, record.payload.data(), sizeof(Fixed));
    if (tail != nullptr)
        *tail = record.payload.subspan(sizeof(Fixed));
    return fixed;
}

class Reader {
  public:
    // As with Writer.
    Reader(int fd, const Deadline &deadline, GoOn go_on);
    ~Reader();
    Reader(const Reader &) = delete;
    Reader &operator=(const Reader &) = delete;
    Reader(Reader &&) = delete;
    Reader &operator=(Reader &&) = delete;

    [[nodiscard]] Expected<Record> next();
    // The same, of this type, or an error that names both.
    [[nodiscard]] Expected<Record> next(RecordType wanted);
    // Bytes that put_pieces() has written, handed on piece by piece.
    [[nodiscard]] Expected<void>
    pieces(RecordType type, std::uint64_t size,
           const std::function<Expected<void>(std::span<const std::byte>)> &take);

    [[nodiscard]] std::uint64_t records() const { return index_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  private:
    [[nodiscard]] Expected<void> read_all(std::span<std::byte> bytes, const char *what);

    int fd_;
    int flags_before_;
    Deadline deadline_;
    GoOn go_on_;
    std::vector<std::byte> payload_;
    std::uint64_t index_ = 0;
    std::uint64_t bytes_ = 0;
};

} // namespace singularity::image
