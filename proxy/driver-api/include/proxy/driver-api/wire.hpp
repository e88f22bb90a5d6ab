// SPDX-License-Identifier: GPL-2.0-or-later
// What the generated messages are made of.
//
// A message is a fixed part (little endian, natural alignment, explicit padding, see the *Wire structs),
// followed by its buffers and strings in the order of the function's parameters, each padded with zeros to 8
// bytes.
//
// The reader trusts nothing: every length is computed in checked arithmetic and compared with what is there,
// and nothing is allocated. Buffers stay in the message, as views, and a length may hang on one of them
// (numNodes of cuGraphGetNodes): a message in shared memory must be copied out before it is decoded.
#pragma once

#include "common/error.hpp"

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace singularity::driver_api {

enum class ApiId : std::uint32_t;

static_assert(std::endian::native == std::endian::little, "the wire is little endian and is copied as it is");

// As wide as on the wire.
enum class MessageKind : std::uint32_t { request = 1, reply = 2 }; // NOLINT(performance-enum-size)

struct MessageHeader {
    std::uint32_t api;  // ApiId
    std::uint32_t kind; // MessageKind
    std::uint64_t size; // of the whole message in bytes, this header included
};
static_assert(sizeof(MessageHeader) == 16 && std::is_trivially_copyable_v<MessageHeader>);

inline constexpr std::size_t kBufferAlignment = 8;

// Bytes that belong to somebody else: the program when encoding, the message when decoding.
struct View {
    std::span<const std::byte> bytes;
    bool present = false; // false: the pointer was NULL
};

// Memory of the client's that is used after the call. Only a range: the daemon maps it or refuses.
struct HostRange {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
};

// A number of bytes or elements that may turn out not to exist: negative, overflown, or read through a NULL
// pointer.
class Length {
  public:
    constexpr Length() = default;
    template <std::integral T>
    constexpr explicit Length(T value)
        : value_(static_cast<std::uint64_t>(value)), valid_(std::cmp_greater_equal(value, 0)) {}

    // The integer of type T behind a pointer parameter.
    template <std::integral T>
    [[nodiscard]] static Length at(const View &view) {
        T value{};
        if (!view.present || view.bytes.size() != sizeof(T))
            return {};
        std::memcpy(&value, view.bytes.data(), sizeof(T));
        return Length(value);
    }

    [[nodiscard]] constexpr bool valid() const { return valid_; }
    [[nodiscard]] constexpr std::uint64_t value() const { return value_; }

    friend constexpr Length operator+(Length a, Length b) {
        a.valid_ = !__builtin_add_overflow(a.value_, b.value_, &a.value_) && a.valid_ && b.valid_;
        return a;
    }
    friend constexpr Length operator-(Length a, Length b) {
        a.valid_ = !__builtin_sub_overflow(a.value_, b.value_, &a.value_) && a.valid_ && b.valid_;
        return a;
    }
    friend constexpr Length operator*(Length a, Length b) {
        a.valid_ = !__builtin_mul_overflow(a.value_, b.value_, &a.value_) && a.valid_ && b.valid_;
        return a;
    }

  private:
    std::uint64_t value_ = 0;
    bool valid_ = false;
};

// Who is being encoded or decoded, for the error's text.
struct Context {
    const char *symbol;
    MessageKind kind;
};

[[nodiscard]] std::unexpected<Error> refuse(Context context, std::string_view parameter, std::string why);

// The bytes a buffer must have; absent ones have none.
[[nodiscard]] Expected<void> check_buffer(Context context, std::string_view parameter, const View &view,
                                          Length expected, bool nullable);
[[nodiscard]] Expected<void> check_string(Context context, std::string_view parameter, const View &view,
                                          bool nullable);
[[nodiscard]] Expected<void> check_range(Context context, std::string_view parameter, const HostRange &range,
                                         Length expected);
// The bytes at each offset of each element, one pointer wide, must be zero.
[[nodiscard]] Expected<void> check_nulls(Context context, std::string_view parameter, const View &view,
                                         std::size_t element, std::initializer_list<std::size_t> offsets);
// An output: what the other side returned against what was asked for.
struct Output {
    Length capacity;     // bytes that the caller has room for
    std::size_t element; // bytes
    bool wanted;         // false: the caller passed NULL
    bool exact;          // the function writes all of it, or nothing
};
[[nodiscard]] Expected<void> check_output(Context context, std::string_view parameter, const View &view,
                                          const Output &output, std::int32_t result);

// Writes one message into memory that the caller has. Past its end it only counts.
class Writer {
  public:
    explicit Writer(std::span<std::byte> storage) : storage_(storage) {}

    template <class Wire>
    void fixed(const Wire &wire) {
        static_assert(std::is_trivially_copyable_v<Wire> && sizeof(Wire) % kBufferAlignment == 0);
        append(std::as_bytes(std::span(&wire, 1)));
    }
    void buffer(const View &view);
    // Writes the size into the header. An error says how many bytes the message takes.
    [[nodiscard]] Expected<std::size_t> finish(Context context);

  private:
    void append(std::span<const std::byte> bytes);

    std::span<std::byte> storage_;
    std::size_t used_ = 0;
};

class Reader {
  public:
    Reader(Context context, std::span<const std::byte> message) : context_(context), message_(message) {}

    template <class Wire>
    [[nodiscard]] Expected<Wire> fixed(ApiId legacy, ApiId per_thread) {
        static_assert(std::is_trivially_copyable_v<Wire> && sizeof(Wire) % kBufferAlignment == 0);
        Wire wire;
        if (auto read = header(sizeof(Wire), legacy, per_thread); !read)
            return propagate(read);
        std::memcpy(&wire, message_.data(), sizeof(Wire));
        at_ = sizeof(Wire);
        return wire;
    }
    // Absent buffers take no room.
    [[nodiscard]] Expected<View> buffer(std::string_view parameter, Length bytes, bool present);
    // Nothing may follow.
    [[nodiscard]] Expected<void> finish() const;

  private:
    [[nodiscard]] Expected<void> header(std::size_t fixed_size, ApiId legacy, ApiId per_thread) const;

    Context context_;
    std::span<const std::byte> message_;
    std::size_t at_ = 0;
};

// What function a message is for, before anything else of it is looked at. Refuses ids that do not exist.
[[nodiscard]] Expected<ApiId> peek(std::span<const std::byte> message);

// Views of a program's memory. NULL is an absent view.
template <class T>
[[nodiscard]] View view_of(const T *pointer, Length bytes) {
    if (pointer == nullptr)
        return {};
    return {.bytes = {static_cast<const std::byte *>(static_cast<const void *>(pointer)),
                      bytes.valid() ? bytes.value() : 0},
            .present = true};
}
[[nodiscard]] View view_of_string(const char *text);
[[nodiscard]] inline HostRange range_of(const void *pointer, Length bytes) {
    return {.address = std::bit_cast<std::uintptr_t>(pointer), .size = bytes.value()};
}
template <class T>
void write_back(T *pointer, const View &view) {
    if (pointer != nullptr && view.present && !view.bytes.empty())
        std::memcpy(static_cast<void *>(pointer), view.bytes.data(), view.bytes.size());
}

} // namespace singularity::driver_api
