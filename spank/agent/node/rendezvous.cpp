// SPDX-License-Identifier: GPL-2.0-or-later
#include "rendezvous.hpp"

#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace singularity::agent {

namespace {

constexpr int kMeetingBacklog = 64;
constexpr int kType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

} // namespace

Expected<RendezvousKey> make_rendezvous_key() {
    RendezvousKey key{};
    if (getrandom(key.data(), key.size(), 0) != std::ssize(key))
        return std::unexpected(errno_error("make", "a key for device proxies"));
    return key;
}

Expected<Rendezvous> rendezvous_here() {
    UniqueFd listener(socket(AF_UNIX, kType, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    socklen_t size = sizeof(name);
    auto *const address = static_cast<sockaddr *>(static_cast<void *>(&name));
    // Without a name the kernel finds a free one in the abstract namespace.
    if (!listener || bind(listener.get(), address, sizeof(sa_family_t)) != 0 ||
        listen(listener.get(), kMeetingBacklog) != 0 || getsockname(listener.get(), address, &size) != 0)
        return std::unexpected(errno_error("make", "a socket for device proxies to meet"));
    auto key = make_rendezvous_key();
    if (!key)
        return propagate(key);
    const auto length = size - offsetof(sockaddr_un, sun_path);
    return Rendezvous{.place = "unix:@" + std::string(name.sun_path + 1, length - 1),
                      .address = {},
                      .host = {},
                      .key = *key,
                      .socket = std::make_shared<UniqueFd>(std::move(listener))};
}

Expected<MeetingPoint> make_meeting_point(std::uint32_t address) {
    MeetingPoint out{.socket = UniqueFd(socket(AF_INET, kType, 0))};
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(address);
    socklen_t size = sizeof(name);
    auto *const where = static_cast<sockaddr *>(static_cast<void *>(&name));
    if (!out.socket || bind(out.socket.get(), where, sizeof(name)) != 0 ||
        listen(out.socket.get(), kMeetingBacklog) != 0 || getsockname(out.socket.get(), where, &size) != 0)
        return std::unexpected(errno_error("listen for device proxies at", tcp_address(address, 0)));
    out.port = ntohs(name.sin_port);
    return out;
}

std::string tcp_address(std::uint32_t address, std::uint16_t port) {
    const in_addr raw{.s_addr = htonl(address)};
    std::array<char, INET_ADDRSTRLEN> text{};
    // It has room for every address.
    static_cast<void>(inet_ntop(AF_INET, &raw, text.data(), text.size()));
    return fmt::format("tcp:{}:{}", text.data(), port);
}

} // namespace singularity::agent
