// SPDX-License-Identifier: GPL-2.0-or-later
// Copies. Memory is device memory (the session's slabs and mappings, variables of its modules) or host memory
// that the session shares; the daemon refuses any other address. Memory of the program that is not shared
// travels as data.
//
// `stream` is a wire number: kLegacyStream or a handle. Copies are in the stream's order. A synchronous copy
// of the program is one of these on its stream, and cuStreamSynchronize where CUDA says that it waits.
#pragma once

#include "proxy/protocol/message.hpp"

namespace singularity::protocol {

// Host to device: the data is in the record. The daemon may read it from the ring until the copy has been
// done.
struct WriteMemory {
    static constexpr Id kId = Id::write_memory;
    static constexpr const char *kName = "WriteMemory";
    static constexpr std::array<Buffer, 1> kBuffers{{{"data"}}};
    using Reply = NoReply;
    std::uint64_t destination = 0;
    std::uint64_t stream = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 1> &buffers) const {
        return buffers[0].bytes.size() > kWritePiece ? "more data than one piece" : nullptr;
    }
};

struct DataReply {
    static constexpr std::array<Buffer, 1> kBuffers{{{"data", 1, Nullable::yes}}};
};

// Device to host: answered when the copy has been done.
struct ReadMemory {
    static constexpr Id kId = Id::read_memory;
    static constexpr const char *kName = "ReadMemory";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = DataReply;
    std::uint64_t source = 0;
    std::uint64_t size = 0;
    std::uint64_t stream = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return size > kReadPiece ? "more data than one piece" : nullptr;
    }
};

enum class CopyDirection : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    device_to_device = 0,
    host_to_device = 1, // "host" is shared host memory here
    device_to_host = 2,
    host_to_host = 3,
    end
};

// Both sides are memory that the daemon reaches. Asynchronous (cuMemcpyAsync and its like).
struct CopyMemory {
    static constexpr Id kId = Id::copy_memory;
    static constexpr const char *kName = "CopyMemory";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = NoReply;
    std::uint64_t destination = 0;
    std::uint64_t source = 0;
    std::uint64_t size = 0;
    std::uint64_t stream = 0;
    std::uint32_t direction = 0; // CopyDirection
    std::uint32_t reserved = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return direction >= static_cast<std::uint32_t>(CopyDirection::end) ? "there is no such direction"
                                                                           : nullptr;
    }
};

enum class PlaceKind : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    data = 0,   // in the message, packed: rows of `width` bytes, `height` rows, `depth` slices; nothing else
                // counts
    device = 1, // address, pitch, height (rows from slice to slice)
    shared_host = 2, // as device
    array = 3,       // handle of kind "array", level
    end
};

// One end of a box copy: CUDA_MEMCPY3D's members, of one side.
struct Place {
    std::uint32_t kind = 0; // PlaceKind
    std::uint32_t level = 0;
    std::uint64_t base = 0; // address or handle
    std::uint64_t x = 0;    // bytes
    std::uint64_t y = 0;
    std::uint64_t z = 0;
    std::uint64_t pitch = 0;
    std::uint64_t height = 0;
};

struct Box {
    std::uint64_t width = 0; // bytes
    std::uint64_t height = 1;
    std::uint64_t depth = 1;
};

// Bytes of a packed box; kAbsent: more than there can be.
[[nodiscard]] constexpr std::uint64_t packed_size(const Box &box) {
    std::uint64_t size = 0;
    if (__builtin_mul_overflow(box.width, box.height, &size) ||
        __builtin_mul_overflow(size, box.depth, &size))
        return kAbsent;
    return size;
}

namespace detail {
[[nodiscard]] constexpr bool is_place(const Place &place, bool data) {
    return place.kind < static_cast<std::uint32_t>(PlaceKind::end) && (place.kind == 0) == data;
}
} // namespace detail

// cuMemcpy2D/3D(Async) with a source that is data. Asynchronous. Boxes with depth 1 may be done by the 2D
// functions.
struct WriteBox {
    static constexpr Id kId = Id::write_box;
    static constexpr const char *kName = "WriteBox";
    static constexpr std::array<Buffer, 1> kBuffers{{{"data"}}};
    using Reply = NoReply;
    Place destination{};
    Box box{};
    std::uint64_t stream = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 1> &buffers) const {
        if (!detail::is_place(destination, false))
            return "the destination is no memory";
        if (buffers[0].bytes.size() > kWritePiece || packed_size(box) != buffers[0].bytes.size())
            return "the data is not the box, or more than one piece";
        return nullptr;
    }
};

struct ReadBox {
    static constexpr Id kId = Id::read_box;
    static constexpr const char *kName = "ReadBox";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = DataReply;
    Place source{};
    Box box{};
    std::uint64_t stream = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        if (!detail::is_place(source, false))
            return "the source is no memory";
        return packed_size(box) > kReadPiece ? "more data than one piece" : nullptr;
    }
};

struct CopyBox {
    static constexpr Id kId = Id::copy_box;
    static constexpr const char *kName = "CopyBox";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = NoReply;
    Place destination{};
    Place source{};
    Box box{};
    std::uint64_t stream = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return !detail::is_place(destination, false) || !detail::is_place(source, false)
                   ? "source or destination is no memory"
                   : nullptr;
    }
};

} // namespace singularity::protocol
