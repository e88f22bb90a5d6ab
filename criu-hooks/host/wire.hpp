// SPDX-License-Identifier: GPL-2.0-or-later
// The wire format of protocol buffers, as far as reading and changing a few fields of CRIU's images takes it.
// (Its messages are hundreds, of which we look at ten fields: cheaper to find by number than to generate.)
// Every length is checked against what is there. https://protobuf.dev/programming-guides/encoding/
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::host {

using Bytes = std::span<const std::byte>;

struct Field {
    enum class Type : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
    std::uint32_t number = 0;
    Type type = Type::kVarint;
    std::uint64_t value = 0; // of a number
    Bytes bytes;             // of text, bytes, messages and packed arrays
    std::size_t begin = 0;   // of the whole field in the message
    std::size_t end = 0;

    [[nodiscard]] std::string_view text() const {
        return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
    }
};

// The fields of a message in their order. An error ends it: what is behind has no meaning.
class FieldReader {
  public:
    explicit FieldReader(Bytes message) : message_(message) {}

    // Nothing at the end.
    [[nodiscard]] Expected<std::optional<Field>> next();

  private:
    [[nodiscard]] Expected<std::uint64_t> varint();

    Bytes message_;
    std::size_t at_ = 0;
};

// All fields of a message; an error if any is malformed.
[[nodiscard]] Expected<std::vector<Field>> fields_of(Bytes message);

// The last one with the number, as the format demands; nullptr if there is none.
[[nodiscard]] const Field *find(const std::vector<Field> &fields, std::uint32_t number);

// The numbers of a repeated field, which may be packed or not.
[[nodiscard]] Expected<std::vector<std::uint64_t>> repeated(const std::vector<Field> &fields,
                                                            std::uint32_t number);

[[nodiscard]] std::string encoded_varint(std::uint64_t value);

// One field of a new message.
[[nodiscard]] std::string encoded_field(std::uint32_t number, std::uint64_t value);
[[nodiscard]] std::string encoded_field(std::uint32_t number, std::string_view bytes);

// The message with one field replaced by another number, or by other bytes, or without it.
[[nodiscard]] std::string with_number(Bytes message, const Field &field, std::uint64_t value);
[[nodiscard]] std::string with_bytes(Bytes message, const Field &field, std::string_view bytes);
[[nodiscard]] std::string without(Bytes message, const Field &field);

} // namespace singularity::host
