// SPDX-License-Identifier: GPL-2.0-or-later
// Field numbers of CRIU's images/{fdinfo,sk-inet}.proto.
#include "criu-hooks/host/connections.hpp"

#include "criu-hooks/host/transfer.hpp"
#include "records.hpp"

#include <cerrno>
#include <cstring>

#include <netinet/tcp.h>
#include <sys/socket.h>

namespace singularity::host {
namespace {

constexpr std::uint32_t kInternetSocket = 4; // of a file's message

constexpr std::uint32_t kFamily = 3;
constexpr std::uint32_t kProtocol = 5;
constexpr std::uint32_t kState = 6;
constexpr std::uint32_t kOwnPort = 7; // in host byte order
constexpr std::uint32_t kPeerPort = 8;
constexpr std::uint32_t kOwnAddress = 11; // words in network byte order
constexpr std::uint32_t kPeerAddress = 12;

std::uint64_t number_of(const std::vector<Field> &fields, std::uint32_t number) {
    const Field *const field = find(fields, number);
    return field == nullptr ? 0 : field->value;
}

Expected<in6_addr> address_of(const std::vector<Field> &fields, std::uint32_t number, bool ipv6) {
    auto words = repeated(fields, number);
    if (!words)
        return propagate(words);
    const std::size_t count = ipv6 ? 4 : 1;
    if (words->size() < count)
        return failure("read", "files.img", "a connection has no whole address", EPROTO);
    in6_addr out{};
    out.s6_addr[10] = out.s6_addr[11] = ipv6 ? 0 : 0xff;
    for (std::size_t at = 0; at < count; ++at) {
        const auto word = static_cast<std::uint32_t>((*words)[at]);
        std::memcpy(&out.s6_addr[4 * (4 - count + at)], &word, sizeof(word));
    }
    return out;
}

bool is_connected(std::uint64_t state) {
    return state == TCP_ESTABLISHED || state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 ||
           state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK || state == TCP_CLOSING;
}

Expected<std::vector<SavedConnection>> connections_in(int images, const std::string &name) {
    std::vector<SavedConnection> out;
    const auto look = [&](Bytes message) -> Expected<void> {
        auto outer = fields_of(message);
        if (!outer)
            return propagate(outer);
        const Field *const body = find(*outer, kInternetSocket);
        if (body == nullptr)
            return {};
        auto fields = fields_of(body->bytes);
        if (!fields)
            return propagate(fields);
        const auto protocol = number_of(*fields, kProtocol);
        const auto family = number_of(*fields, kFamily);
        if ((protocol != IPPROTO_TCP && protocol != IPPROTO_UDP) ||
            (family != AF_INET && family != AF_INET6) || !is_connected(number_of(*fields, kState)))
            return {};
        const bool ipv6 = family == AF_INET6;
        auto own = address_of(*fields, kOwnAddress, ipv6);
        if (!own)
            return propagate(own);
        auto peer = address_of(*fields, kPeerAddress, ipv6);
        if (!peer)
            return propagate(peer);
        out.push_back({.protocol = static_cast<std::uint8_t>(protocol),
                       .own = *own,
                       .peer = *peer,
                       .own_port = static_cast<std::uint16_t>(number_of(*fields, kOwnPort)),
                       .peer_port = static_cast<std::uint16_t>(number_of(*fields, kPeerPort))});
        return {};
    };
    if (auto read = for_each_record(images, name, Magic::kFiles, look); !read)
        return propagate(read);
    return out;
}

} // namespace

Expected<std::vector<SavedConnection>> saved_connections(int images) {
    return connections_in(images, "files.img");
}

Expected<std::vector<SavedConnection>> saved_connections_of_others(const store::Checkpoint &checkpoint,
                                                                   const std::string &node, int images) {
    auto names = load_tables_of_others(checkpoint, node, images);
    if (!names)
        return propagate(names);
    std::vector<SavedConnection> out;
    for (const auto &name : *names) {
        auto found = connections_in(images, name);
        if (!found)
            return propagate(found);
        out.insert(out.end(), found->begin(), found->end());
    }
    return out;
}

} // namespace singularity::host
