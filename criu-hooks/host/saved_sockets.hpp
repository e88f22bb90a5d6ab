// SPDX-License-Identifier: GPL-2.0-or-later
// The Unix sockets of an image. Field numbers of CRIU's images/{fdinfo,sk-unix}.proto.
#pragma once

#include "records.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace singularity::host {

namespace saved_socket {
inline constexpr std::uint32_t kUnixSocket = 16; // of a file's message

inline constexpr std::uint32_t kInode = 2;
inline constexpr std::uint32_t kType = 3;       // SOCK_STREAM...
inline constexpr std::uint32_t kFlags = 6;      // USK_...
inline constexpr std::uint32_t kPeer = 8;       // its inode
inline constexpr std::uint32_t kName = 11;      // with the zero at its end
inline constexpr std::uint32_t kDirectory = 14; // of a name that is none of the root's
inline constexpr std::uint32_t kDeleted = 15;
inline constexpr std::uint32_t kMount = 17; // zigzag

// USK_EXTERN, of kFlags: another process's end of a connection, of which criu makes nothing.
inline constexpr std::uint64_t kNotSaved = 1;
} // namespace saved_socket

// Hands the fields of each to `work(const std::vector<Field> &) -> Expected<void>`, until one fails.
template <class Work>
[[nodiscard]] Expected<void> for_each_saved_socket(int images, Work &&work) {
    const auto look = [&](Bytes message) -> Expected<void> {
        auto outer = fields_of(message);
        if (!outer)
            return propagate(outer);
        const Field *const body = find(*outer, saved_socket::kUnixSocket);
        if (body == nullptr)
            return {};
        auto fields = fields_of(body->bytes);
        return fields ? work(std::as_const(*fields)) : propagate(fields);
    };
    return for_each_record(images, "files.img", Magic::kFiles, look);
}

} // namespace singularity::host
