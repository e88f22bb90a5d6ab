// SPDX-License-Identifier: GPL-2.0-or-later
// What hand-written messages are made of. Each message is described by one struct, which is its fixed part as
// it lies on the wire and says the rest in constants:
//
//     struct MapSlab {
//         static constexpr Id kId = Id::map_slab;
//         static constexpr const char *kName = "MapSlab";
//         static constexpr std::array<Buffer, 0> kBuffers{};
//         using Reply = Nothing;                // NoReply: the message is asynchronous
//         std::uint64_t address = 0;
//         std::uint64_t size = 0;
//     };
//
// A request on the wire: driver_api::MessageHeader, the fixed part, one u64 size for each buffer (kAbsent:
// NULL), the buffers, each padded with zeros to 8 bytes. A reply is the same with {i32 result, u32 0} behind
// the header.
//
// Decoding trusts nothing, allocates nothing and leaves buffers where they are: a message in shared memory is
// copied out before it is decoded, but for buffers that are payload only.
#pragma once

#include "proxy/driver-api/wire.hpp"
#include "proxy/protocol/ids.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace singularity::protocol {

using driver_api::MessageHeader;
using driver_api::MessageKind;
using driver_api::View;

inline constexpr std::uint64_t kAbsent = ~std::uint64_t{0};

enum class Nullable : bool { no, yes };

// One variable part: a whole number of elements.
struct Buffer {
    const char *name;
    std::size_t element = 1; // bytes
    Nullable nullable = Nullable::no;
};

// The reply of a message that has none.
struct NoReply {};

// A reply that is nothing but a result.
struct Nothing {
    static constexpr std::array<Buffer, 0> kBuffers{};
};

template <class Fixed>
inline constexpr std::size_t kBufferCount = Fixed::kBuffers.size();

template <class Fixed>
inline constexpr std::size_t kFixedSize = std::is_empty_v<Fixed> ? 0 : sizeof(Fixed);

template <class Fixed>
inline constexpr bool kReplies = !std::is_same_v<typename Fixed::Reply, NoReply>;

template <class Fixed>
struct Message {
    Fixed fixed{};
    std::array<View, kBufferCount<Fixed>> buffers{};
};

template <class Fixed>
struct ReplyMessage {
    std::int32_t result = 0; // CUresult
    Fixed fixed{};
    std::array<View, kBufferCount<Fixed>> buffers{};
};

struct ReplyPrefix {
    MessageHeader header;
    std::int32_t result;
    std::uint32_t reserved;
};

[[nodiscard]] constexpr std::size_t padded(std::size_t size) {
    return (size + driver_api::kBufferAlignment - 1) / driver_api::kBufferAlignment *
           driver_api::kBufferAlignment;
}

// Bytes in front of the first buffer.
template <class Fixed>
inline constexpr std::size_t kRequestHead =
    sizeof(MessageHeader) + kFixedSize<Fixed> + kBufferCount<Fixed> * sizeof(std::uint64_t);
template <class Fixed>
inline constexpr std::size_t kReplyHead =
    sizeof(ReplyPrefix) + kFixedSize<Fixed> + kBufferCount<Fixed> * sizeof(std::uint64_t);

namespace detail {

// The part after header (and result): fixed part, sizes, buffers.
struct Layout {
    const char *name;
    std::span<const Buffer> buffers;
    std::size_t prefix; // bytes of header and result
    std::size_t fixed;
};

// An error names the message and says how many bytes there would have to be.
[[nodiscard]] Expected<std::size_t> encode(const Layout &layout, const void *prefix, const void *fixed,
                                           std::span<const View> buffers, std::span<std::byte> storage);
[[nodiscard]] Expected<void> decode(const Layout &layout, Id id, MessageKind kind,
                                    std::span<const std::byte> bytes, void *fixed, std::span<View> buffers);
[[nodiscard]] std::unexpected<Error> refuse(const char *name, std::string_view why);

template <class Fixed>
constexpr void check_description() {
    static_assert(std::is_trivially_copyable_v<Fixed> &&
                      kFixedSize<Fixed> % driver_api::kBufferAlignment == 0,
                  "a fixed part is copied as it is: pad it explicitly to a multiple of 8 bytes");
    static_assert(
        std::is_empty_v<Fixed> || std::has_unique_object_representations_v<Fixed> || requires {
            Fixed::kHoldsFloats;
        }, "no bytes that nobody has set may go over the wire");
}

} // namespace detail

template <class Fixed>
[[nodiscard]] std::size_t encoded_size(const Message<Fixed> &message) {
    std::size_t size = kRequestHead<Fixed>;
    for (const auto &buffer : message.buffers)
        size += buffer.present ? padded(buffer.bytes.size()) : 0;
    return size;
}

// Refuses what the other side would refuse.
template <class Fixed>
[[nodiscard]] Expected<std::size_t> encode(const Message<Fixed> &message, std::span<std::byte> storage) {
    detail::check_description<Fixed>();
    if constexpr (requires { message.fixed.wrong(message.buffers); })
        if (const char *why = message.fixed.wrong(message.buffers); why != nullptr)
            return detail::refuse(Fixed::kName, why);
    const MessageHeader header{
        .api = std::to_underlying(Fixed::kId), .kind = std::to_underlying(MessageKind::request), .size = 0};
    return detail::encode({Fixed::kName, Fixed::kBuffers, sizeof(header), kFixedSize<Fixed>}, &header,
                          &message.fixed, message.buffers, storage);
}

template <class Fixed>
[[nodiscard]] Expected<Message<Fixed>> decode_request(std::span<const std::byte> bytes) {
    detail::check_description<Fixed>();
    Message<Fixed> message;
    if (auto done = detail::decode({Fixed::kName, Fixed::kBuffers, sizeof(MessageHeader), kFixedSize<Fixed>},
                                   Fixed::kId, MessageKind::request, bytes, &message.fixed, message.buffers);
        !done)
        return propagate(done);
    if constexpr (requires { message.fixed.wrong(message.buffers); })
        if (const char *why = message.fixed.wrong(message.buffers); why != nullptr)
            return detail::refuse(Fixed::kName, why);
    return message;
}

// `Request` is the request that is answered. Where the result is not 0, fixed part and buffers may be empty.
template <class Request>
[[nodiscard]] Expected<std::size_t> encode_reply(const ReplyMessage<typename Request::Reply> &reply,
                                                 std::span<std::byte> storage) {
    using Fixed = typename Request::Reply;
    detail::check_description<Fixed>();
    const ReplyPrefix prefix{.header = {.api = std::to_underlying(Request::kId),
                                        .kind = std::to_underlying(MessageKind::reply),
                                        .size = 0},
                             .result = reply.result,
                             .reserved = 0};
    return detail::encode({Request::kName, Fixed::kBuffers, sizeof(prefix), kFixedSize<Fixed>}, &prefix,
                          &reply.fixed, reply.buffers, storage);
}

template <class Request>
[[nodiscard]] Expected<ReplyMessage<typename Request::Reply>> decode_reply(std::span<const std::byte> bytes) {
    using Fixed = typename Request::Reply;
    ReplyMessage<Fixed> reply;
    if (auto done = detail::decode({Request::kName, Fixed::kBuffers, sizeof(ReplyPrefix), kFixedSize<Fixed>},
                                   Request::kId, MessageKind::reply, bytes, &reply.fixed, reply.buffers);
        !done)
        return propagate(done);
    std::memcpy(&reply.result, bytes.data() + offsetof(ReplyPrefix, result), sizeof(reply.result));
    return reply;
}

// The bytes a reply takes whose buffers have these sizes together (each padded).
template <class Request>
[[nodiscard]] constexpr std::size_t reply_size(std::size_t padded_buffers = 0) {
    return kReplyHead<typename Request::Reply> + padded_buffers;
}

// Writes a request's head into memory and says where its buffers go, so that payload is written only once.
// `sizes`: bytes of each buffer or kAbsent. The storage must have the bytes: kRequestHead + padded sizes.
template <class Fixed>
[[nodiscard]] std::array<std::span<std::byte>, kBufferCount<Fixed>>
encode_in_place(const Fixed &fixed, const std::array<std::uint64_t, kBufferCount<Fixed>> &sizes,
                std::span<std::byte> storage) {
    detail::check_description<Fixed>();
    std::array<std::span<std::byte>, kBufferCount<Fixed>> places{};
    std::size_t at = kRequestHead<Fixed>;
    for (std::size_t buffer = 0; buffer < sizes.size(); ++buffer) {
        if (sizes[buffer] == kAbsent)
            continue;
        const auto size = static_cast<std::size_t>(sizes[buffer]);
        places[buffer] = storage.subspan(at, size);
        std::fill_n(storage.begin() + static_cast<std::ptrdiff_t>(at + size), padded(size) - size,
                    std::byte{0});
        at += padded(size);
    }
    const MessageHeader header{
        .api = std::to_underlying(Fixed::kId), .kind = std::to_underlying(MessageKind::request), .size = at};
    std::memcpy(storage.data(), &header, sizeof(header));
    if constexpr (!std::is_empty_v<Fixed>)
        std::memcpy(storage.data() + sizeof(header), &fixed, sizeof(fixed));
    if constexpr (kBufferCount<Fixed> != 0)
        std::memcpy(storage.data() + sizeof(header) + kFixedSize<Fixed>, sizes.data(), sizeof(sizes));
    return places;
}

// Elements of a buffer; it need not be aligned.
template <class T>
[[nodiscard]] std::size_t element_count(const View &view) {
    return view.present ? view.bytes.size() / sizeof(T) : 0;
}
template <class T>
[[nodiscard]] T element(const View &view, std::size_t index) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, view.bytes.data() + index * sizeof(T), sizeof(T));
    return value;
}
template <class T>
[[nodiscard]] View view_of_elements(std::span<const T> elements) {
    return {.bytes = std::as_bytes(elements), .present = true};
}
[[nodiscard]] inline View view_of_text(std::string_view text) {
    return {.bytes = std::as_bytes(std::span(text)), .present = true};
}
[[nodiscard]] inline std::string_view text_of(const View &view) {
    return view.present
               ? std::string_view(static_cast<const char *>(static_cast<const void *>(view.bytes.data())),
                                  view.bytes.size())
               : std::string_view();
}

// The id of a message, before anything else of it is looked at: one of driver_api's or one of ours.
[[nodiscard]] inline std::uint32_t peek_id(std::span<const std::byte> message) {
    std::uint32_t id = ~std::uint32_t{0};
    if (message.size() >= sizeof(MessageHeader))
        std::memcpy(&id, message.data(), sizeof(id));
    return id;
}

} // namespace singularity::protocol
