// SPDX-License-Identifier: GPL-2.0-or-later
#include "tcp.hpp"

#include "common/text.hpp"

#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace singularity::peers {

namespace {

sockaddr_in address_for(const Endpoint &endpoint) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(endpoint.port);
    out.sin_addr.s_addr = htonl(endpoint.address);
    return out;
}

const sockaddr *generic(const sockaddr_in &address) { return reinterpret_cast<const sockaddr *>(&address); }
sockaddr *generic(sockaddr_in &address) { return reinterpret_cast<sockaddr *>(&address); }

Expected<UniqueFd> tcp_socket() {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket)
        return std::unexpected(errno_error("make", "a socket"));
    return socket;
}

void set(int socket, int level, int option, int value) {
    // They make the wait for a dead host shorter; without them the agents' own deadlines end it.
    static_cast<void>(setsockopt(socket, level, option, &value, sizeof(value)));
}

void tune(int socket) {
    set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

} // namespace

std::string text_of(std::uint32_t address) {
    return fmt::format("{}.{}.{}.{}", address >> 24, address >> 16 & 0xff, address >> 8 & 0xff,
                       address & 0xff);
}

std::string text_of(const Endpoint &endpoint) {
    return fmt::format("{}:{}", text_of(endpoint.address), endpoint.port);
}

Expected<std::uint32_t> address_of(const std::string &text) {
    in_addr address{};
    if (inet_pton(AF_INET, text.c_str(), &address) != 1)
        return failure("use the address", quote(text), "expected an IPv4 address such as 10.0.0.1", EINVAL);
    return ntohl(address.s_addr);
}

Expected<UniqueFd> listen_tcp(const Endpoint &at, int backlog) {
    auto socket = tcp_socket();
    if (!socket)
        return socket;
    const int yes = 1;
    const auto address = address_for(at);
    if (setsockopt(socket->get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        bind(socket->get(), generic(address), sizeof(address)) != 0 || listen(socket->get(), backlog) != 0)
        return std::unexpected(errno_error("listen on", text_of(at)));
    return socket;
}

Expected<UniqueFd> call_tcp(const Endpoint &to) {
    auto socket = tcp_socket();
    if (!socket)
        return socket;
    auto own = address_for({});
    if (bindresvport(socket->get(), &own) != 0)
        return std::unexpected(errno_error("get", "a port below 1024"));
    const auto address = address_for(to);
    if (connect(socket->get(), generic(address), sizeof(address)) != 0 && errno != EINPROGRESS)
        return std::unexpected(errno_error("call", text_of(to)));
    tune(socket->get());
    return socket;
}

int call_result(int socket) {
    int code = 0;
    socklen_t size = sizeof(code);
    return getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size) == 0 ? code : errno;
}

Expected<Accepted> accept_tcp(int listener) {
    sockaddr_in from{};
    socklen_t size = sizeof(from);
    UniqueFd socket(accept4(listener, generic(from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket)
        return std::unexpected(errno_error("accept", "a connection"));
    tune(socket.get());
    return Accepted{.socket = std::move(socket),
                    .from = {.address = ntohl(from.sin_addr.s_addr), .port = ntohs(from.sin_port)}};
}

Expected<std::uint32_t> own_address(int socket) {
    sockaddr_in own{};
    socklen_t size = sizeof(own);
    if (getsockname(socket, generic(own), &size) != 0 || own.sin_family != AF_INET)
        return std::unexpected(errno_error("ask for", "the address of a socket"));
    return ntohl(own.sin_addr.s_addr);
}

Expected<std::uint32_t> resolve(const std::string &host) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *found = nullptr;
    const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    if (code != 0 || found == nullptr || found->ai_addrlen != sizeof(sockaddr_in))
        return failure("find the host", quote(host),
                       code != 0 ? gai_strerror(code) : "it has no IPv4 address", EHOSTUNREACH);
    sockaddr_in address{};
    std::memcpy(&address, found->ai_addr, sizeof(address));
    return ntohl(address.sin_addr.s_addr);
}

} // namespace singularity::peers
