// SPDX-License-Identifier: GPL-2.0-or-later
// Both ends of a channel, and what tests of it do over and over.
#pragma once

#include "cmocka.hpp"
#include "common/deadline.hpp"
#include "need.hpp"
#include "proxy/channel/client_end.hpp"
#include "proxy/channel/server_end.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include <sys/socket.h>

namespace singularity::test {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

// Small, so that a test wraps and fills it quickly.
inline channel::Geometry small_geometry() {
    return {.ring_size = 4096,
            .record_limit = 1024,
            .slots = 4,
            .inline_size = 64,
            .pieces = 2,
            .piece_size = 8192};
}

inline std::pair<UniqueFd, UniqueFd> socket_pair() {
    int sockets[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        fail(errno_error("make", "a pair of sockets").message());
    return {UniqueFd(sockets[0]), UniqueFd(sockets[1])};
}

struct ChannelPair {
    std::unique_ptr<channel::ServerEnd> server;
    std::unique_ptr<channel::ClientEnd> client;
    UniqueFd server_socket;

    explicit ChannelPair(const channel::Geometry &geometry = small_geometry())
        : server(need(channel::ServerEnd::create(geometry))) {
        auto [ours, theirs] = socket_pair();
        server_socket = std::move(theirs);
        client =
            std::make_unique<channel::ClientEnd>(need(channel::Segment::map(server->segment_fd(), geometry)),
                                                 need(channel::Link::adopt(std::move(ours))));
    }

    [[nodiscard]] channel::Record next(const char *file = __builtin_FILE(),
                                       int line = __builtin_LINE()) const {
        auto record = need(server->next(soon()), file, line);
        if (!record)
            fail("no record came", file, line);
        return *record;
    }
};

template <class T>
std::span<const std::byte> bytes_of(const T &value) {
    return std::as_bytes(std::span(&value, 1));
}

template <class T>
T value_of(std::span<const std::byte> bytes, const char *file = __builtin_FILE(),
           int line = __builtin_LINE()) {
    T value{};
    if (bytes.size() < sizeof(T))
        fail("the message is too short", file, line);
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
}

inline void put(channel::ClientEnd &client, std::span<const std::byte> message,
                channel::Pending *reply = nullptr, std::uint64_t context = 0) {
    auto record = need(client.begin(context, message.size(), reply));
    if (record.message().size() != message.size())
        fail("the room has another size than was asked for");
    std::ranges::copy(message, record.message().begin());
    record.commit();
}

} // namespace singularity::test
