// SPDX-License-Identifier: GPL-2.0-or-later
#include "wire.hpp"

#include <fmt/format.h>

namespace singularity::host {
namespace {

constexpr unsigned kTypeBits = 3;
constexpr std::size_t kLongestVarint = 10;
constexpr unsigned kVarintBits = 7;
constexpr std::uint64_t kVarintMask = 0x7f;
constexpr std::uint64_t kContinues = 0x80;
// A field in memory is 30 times as large as the smallest one in a message. CRIU's longest messages have a
// field for each thread of a process.
constexpr std::size_t kMostFields = std::size_t{1} << 18U;

std::unexpected<Error> malformed(std::size_t at, std::string_view what) {
    return failure("read", "an image", fmt::format("{} at byte {} of a message", what, at));
}

std::string replaced(Bytes message, const Field &field, const std::string &content) {
    const std::string_view all(reinterpret_cast<const char *>(message.data()), message.size());
    return std::string(all.substr(0, field.begin)) + content + std::string(all.substr(field.end));
}

std::string tag(std::uint32_t number, Field::Type type) {
    return encoded_varint((std::uint64_t{number} << kTypeBits) | static_cast<std::uint64_t>(type));
}
std::string tag(const Field &field) { return tag(field.number, field.type); }

} // namespace

Expected<std::uint64_t> FieldReader::varint() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < kLongestVarint; ++i) {
        if (at_ == message_.size())
            return malformed(at_, "a number without an end");
        const auto byte = static_cast<std::uint64_t>(message_[at_++]);
        value |= (byte & kVarintMask) << (kVarintBits * i);
        if ((byte & kContinues) == 0)
            return value;
    }
    return malformed(at_, "a number that is too long");
}

Expected<std::optional<Field>> FieldReader::next() {
    if (at_ == message_.size())
        return std::optional<Field>();
    Field field;
    field.begin = at_;
    auto tag_value = varint();
    if (!tag_value)
        return propagate(tag_value);
    const std::uint64_t number = *tag_value >> kTypeBits;
    if (number == 0 || number > (std::uint64_t{1} << 29U))
        return malformed(field.begin, "a field number that cannot be");
    field.number = static_cast<std::uint32_t>(number);
    std::size_t size = 0;
    switch (*tag_value & 7U) {
    case 0: {
        auto value = varint();
        if (!value)
            return propagate(value);
        field.value = *value;
        break;
    }
    case 1:
        field.type = Field::Type::kFixed64;
        size = sizeof(std::uint64_t);
        break;
    case 2: {
        field.type = Field::Type::kBytes;
        auto length = varint();
        if (!length)
            return propagate(length);
        if (*length > message_.size() - at_)
            return malformed(field.begin, fmt::format("a length of {} where {} bytes are left", *length,
                                                      message_.size() - at_));
        size = static_cast<std::size_t>(*length);
        break;
    }
    case 5:
        field.type = Field::Type::kFixed32;
        size = sizeof(std::uint32_t);
        break;
    default:
        return malformed(field.begin, "a field type that cannot be");
    }
    if (size > message_.size() - at_)
        return malformed(field.begin, "the end in the middle of a field");
    field.bytes = message_.subspan(at_, size);
    at_ += size;
    if (field.type == Field::Type::kFixed64 || field.type == Field::Type::kFixed32)
        for (std::size_t i = size; i-- > 0;)
            field.value = (field.value << 8U) | static_cast<std::uint64_t>(field.bytes[i]);
    field.end = at_;
    return std::optional(field);
}

Expected<std::vector<Field>> fields_of(Bytes message) {
    FieldReader reader(message);
    std::vector<Field> fields;
    for (;;) {
        auto field = reader.next();
        if (!field)
            return propagate(field);
        const std::optional<Field> &found = *field;
        if (!found)
            return fields;
        if (fields.size() == kMostFields)
            return malformed(found->begin, fmt::format("more than {} fields", kMostFields));
        fields.push_back(*found);
    }
}

const Field *find(const std::vector<Field> &fields, std::uint32_t number) {
    const Field *found = nullptr;
    for (const Field &each : fields)
        if (each.number == number)
            found = &each;
    return found;
}

Expected<std::vector<std::uint64_t>> repeated(const std::vector<Field> &fields, std::uint32_t number) {
    std::vector<std::uint64_t> values;
    for (const Field &each : fields) {
        if (each.number != number)
            continue;
        if (each.type != Field::Type::kBytes) {
            values.push_back(each.value);
            continue;
        }
        Bytes rest = each.bytes;
        while (!rest.empty()) {
            std::uint64_t value = 0;
            std::size_t length = 0;
            do {
                if (length == rest.size() || length == kLongestVarint)
                    return malformed(each.begin, "a number without an end");
                value |= (static_cast<std::uint64_t>(rest[length]) & kVarintMask) << (kVarintBits * length);
            } while ((static_cast<std::uint64_t>(rest[length++]) & kContinues) != 0);
            values.push_back(value);
            rest = rest.subspan(length);
        }
    }
    return values;
}

std::string encoded_varint(std::uint64_t value) {
    std::string bytes;
    while (value > kVarintMask) {
        bytes += static_cast<char>((value & kVarintMask) | kContinues);
        value >>= kVarintBits;
    }
    return bytes + static_cast<char>(value);
}

std::string encoded_field(std::uint32_t number, std::uint64_t value) {
    return tag(number, Field::Type::kVarint) + encoded_varint(value);
}

std::string encoded_field(std::uint32_t number, std::string_view bytes) {
    return tag(number, Field::Type::kBytes) + encoded_varint(bytes.size()) + std::string(bytes);
}

std::string with_number(Bytes message, const Field &field, std::uint64_t value) {
    return replaced(message, field, tag(field) + encoded_varint(value));
}

std::string with_bytes(Bytes message, const Field &field, std::string_view bytes) {
    return replaced(message, field, tag(field) + encoded_varint(bytes.size()) + std::string(bytes));
}

std::string without(Bytes message, const Field &field) { return replaced(message, field, {}); }

} // namespace singularity::host
