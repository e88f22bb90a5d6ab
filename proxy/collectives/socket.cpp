// SPDX-License-Identifier: GPL-2.0-or-later
#include "socket.hpp"

#include "common/text.hpp"
#include "common/unix_socket.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace singularity::collectives {

namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kTcp = "tcp:";
constexpr int kBacklog = 256;

struct UnixName {
    sockaddr_un address{};
    socklen_t size = 0;
};

Expected<UnixName> unix_name(const Address &address) {
    UnixName name;
    if (!address.host.starts_with('@')) {
        auto whole = unix_address(address.host);
        if (!whole)
            return propagate(whole);
        return UnixName{.address = *whole, .size = sizeof(sockaddr_un)};
    }
    // unix(7): an abstract name begins with a NUL and ends where the address does.
    name.address.sun_family = AF_UNIX;
    const auto size = address.host.size() - 1;
    if (size >= sizeof(name.address.sun_path))
        return failure("use", quote(address.text()), "the name is too long", ENAMETOOLONG);
    std::memcpy(name.address.sun_path + 1, address.host.data() + 1, size);
    name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + (size == 0 ? 0 : 1 + size));
    return name;
}

using Infos = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Expected<Infos> resolve(const Address &address, bool to_listen) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
    addrinfo *found = nullptr;
    if (const int error = getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(),
                                      address.port.c_str(), &hints, &found);
        error != 0)
        return failure("find", quote(address.text()), gai_strerror(error), EADDRNOTAVAIL);
    return Infos(found, &freeaddrinfo);
}

// Time in which this process did not run, since it was stopped or the machine was, is not the other side's
// silence. So it is waited in parts, and whatever happens in one of them counts as no more than its length.
Expected<void> wait_for(int fd, short events, const Deadline &deadline, std::string_view what) {
    constexpr int kWaitParts = 8;
    const auto part = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining() / kWaitParts);
    pollfd one{.fd = fd, .events = events, .revents = 0};
    for (int passed = 0; passed < kWaitParts; ++passed) {
        const auto end = Deadline::after(part);
        int ready = 0;
        do
            ready = poll(&one, 1, end.poll_timeout());
        while ((ready < 0 && errno == EINTR) || (ready == 0 && !end.expired()));
        if (ready > 0)
            return {};
        if (ready < 0)
            return std::unexpected(errno_error("wait for", what));
    }
    return std::unexpected(timeout_error(deadline, what));
}

// Without TCP_USER_TIMEOUT: the kernel would also hang up on a process that was stopped for so long and took
// nothing meanwhile. That a host is gone is for the reader to notice.
void prepare_tcp(int fd) {
    const int on = 1;
    static_cast<void>(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
}

Expected<void> connect_fd(int fd, const sockaddr *address, socklen_t size, const Deadline &deadline,
                          const std::string &text) {
    if (::connect(fd, address, size) == 0)
        return {};
    if (errno != EINPROGRESS && errno != EAGAIN)
        return std::unexpected(errno_error("connect to", text));
    if (auto waited = wait_for(fd, POLLOUT, deadline, text); !waited)
        return waited;
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0)
        return std::unexpected(errno_error("connect to", text, error));
    return {};
}

} // namespace

std::string Address::text() const {
    if (unix_socket)
        return fmt::format("unix:{}", host);
    return host.contains(':') ? fmt::format("tcp:[{}]:{}", host, port) : fmt::format("tcp:{}:{}", host, port);
}

Expected<Address> Address::parse(const std::string &text) {
    if (text.starts_with(kUnix) && text.size() > kUnix.size())
        return Address{.unix_socket = true, .host = text.substr(kUnix.size()), .port = {}};
    const auto colon = text.rfind(':');
    if (!text.starts_with(kTcp) || colon < kTcp.size() || colon + 1 == text.size() ||
        text.find_first_not_of("0123456789", colon + 1) != std::string::npos)
        return failure("use", quote(text), "an address is unix:PATH or tcp:HOST:PORT", EINVAL);
    auto host = text.substr(kTcp.size(), colon - kTcp.size());
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    return Address{.unix_socket = false, .host = host, .port = text.substr(colon + 1)};
}

Expected<Socket> Socket::connect(const Address &address, const Deadline &deadline) {
    constexpr int kType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    const auto text = address.text();
    if (address.unix_socket) {
        const auto name = unix_name(address);
        if (!name)
            return std::unexpected(name.error());
        UniqueFd fd(socket(AF_UNIX, kType, 0));
        if (!fd)
            return std::unexpected(errno_error("make a socket to", text));
        // A full queue of a Unix socket cannot be waited for.
        Expected<void> done;
        const auto tried = wait_until(
            [&] {
                done = connect_fd(fd.get(),
                                  static_cast<const sockaddr *>(static_cast<const void *>(&name->address)),
                                  name->size, deadline, text);
                return done || done.error().code != EAGAIN;
            },
            deadline, text);
        if (!tried || !done)
            return std::unexpected(done ? tried.error() : done.error());
        return Socket(std::move(fd));
    }
    const auto infos = resolve(address, false);
    if (!infos)
        return std::unexpected(infos.error());
    Expected<void> done = failure("connect to", text, "it has no address", EADDRNOTAVAIL);
    for (const auto *info = infos->get(); info != nullptr; info = info->ai_next) {
        UniqueFd fd(socket(info->ai_family, kType, 0));
        if (!fd)
            continue;
        done = connect_fd(fd.get(), info->ai_addr, info->ai_addrlen, deadline, text);
        if (!done)
            continue;
        prepare_tcp(fd.get());
        return Socket(std::move(fd));
    }
    return propagate(done);
}

template <typename Until>
Expected<void> Socket::send_all(std::span<iovec> parts, int descriptor, Until until) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    while (!parts.empty()) {
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = parts.size();
        if (descriptor >= 0) {
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            cmsghdr *head = CMSG_FIRSTHDR(&message);
            head->cmsg_level = SOL_SOCKET;
            head->cmsg_type = SCM_RIGHTS;
            head->cmsg_len = CMSG_LEN(sizeof(int));
            std::memcpy(CMSG_DATA(head), &descriptor, sizeof(descriptor));
        }
        const auto sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            if (errno != EAGAIN)
                return std::unexpected(errno_error("send to", "a peer"));
            if (auto waited = wait_for(fd_.get(), POLLOUT, until(), "a peer to take data"); !waited)
                return waited;
            continue;
        }
        descriptor = -1;
        auto left = static_cast<std::size_t>(sent);
        while (!parts.empty() && left >= parts.front().iov_len) {
            left -= parts.front().iov_len;
            parts = parts.subspan(1);
        }
        if (left != 0) {
            parts.front().iov_base = static_cast<std::byte *>(parts.front().iov_base) + left;
            parts.front().iov_len -= left;
        }
    }
    return {};
}

Expected<void> Socket::send(std::span<iovec> parts, const Deadline &deadline, int descriptor) {
    return send_all(parts, descriptor, [&deadline] { return deadline; });
}

Expected<void> Socket::send(std::span<iovec> parts, Silence silence, int descriptor) {
    return send_all(parts, descriptor, [silence] { return Deadline::after(silence.most); });
}

Expected<void> Socket::send(std::span<const std::byte> bytes, const Deadline &deadline) {
    iovec part{.iov_base = const_cast<std::byte *>(bytes.data()), .iov_len = bytes.size()};
    return send(std::span(&part, bytes.empty() ? 0 : 1), deadline);
}

template <typename Until>
Expected<void> Socket::receive_all(std::span<std::byte> bytes, UniqueFd *descriptor, Until until) {
    while (!bytes.empty()) {
        iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        if (descriptor != nullptr) {
            message.msg_control = control.data();
            message.msg_controllen = control.size();
        }
        const auto got = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            if (errno != EAGAIN)
                return std::unexpected(errno_error("receive from", "a peer"));
            if (auto waited = wait_for(fd_.get(), POLLIN, until(), "a sign of life of a peer"); !waited)
                return waited;
            continue;
        }
        if (got == 0)
            return failure("receive from", "a peer", "it has hung up", ECONNRESET);
        if (descriptor != nullptr)
            for (cmsghdr *head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head))
                if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
                    head->cmsg_len == CMSG_LEN(sizeof(int))) {
                    int fd = -1;
                    std::memcpy(&fd, CMSG_DATA(head), sizeof(fd));
                    *descriptor = UniqueFd(fd);
                }
        bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
    return {};
}

Expected<void> Socket::receive(std::span<std::byte> bytes, const Deadline &deadline, UniqueFd *descriptor) {
    return receive_all(bytes, descriptor, [&deadline] { return deadline; });
}

Expected<void> Socket::receive(std::span<std::byte> bytes, Silence silence, UniqueFd *descriptor) {
    return receive_all(bytes, descriptor, [silence] { return Deadline::after(silence.most); });
}

std::string Socket::peer_address() const {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    auto *const where = static_cast<sockaddr *>(static_cast<void *>(&peer));
    std::array<char, NI_MAXHOST> host{};
    if (getpeername(fd_.get(), where, &size) != 0 || peer.ss_family == AF_UNIX ||
        getnameinfo(where, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
        return {};
    return host.data();
}

void Socket::shut_down() const { static_cast<void>(::shutdown(fd_.get(), SHUT_RDWR)); }

Expected<ListeningSocket> ListeningSocket::open(const Address &address) {
    constexpr int kType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    const auto text = address.text();
    ListeningSocket out;
    out.address_ = address;
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    auto *const where = static_cast<sockaddr *>(static_cast<void *>(&bound));
    if (address.unix_socket) {
        const auto name = unix_name(address);
        if (!name)
            return std::unexpected(name.error());
        out.fd_ = UniqueFd(socket(AF_UNIX, kType, 0));
        const auto *to = static_cast<const sockaddr *>(static_cast<const void *>(&name->address));
        if (!out.fd_ || bind(out.fd_.get(), to, name->size) != 0 || listen(out.fd_.get(), kBacklog) != 0 ||
            getsockname(out.fd_.get(), where, &size) != 0)
            return std::unexpected(errno_error("listen at", text));
        if (address.host == "@") {
            const auto *chosen = static_cast<const sockaddr_un *>(static_cast<const void *>(&bound));
            out.address_.host =
                "@" + std::string(chosen->sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
        }
        return out;
    }
    const auto infos = resolve(address, true);
    if (!infos)
        return std::unexpected(infos.error());
    const auto *info = infos->get();
    out.fd_ = UniqueFd(socket(info->ai_family, kType, 0));
    const int on = 1;
    if (!out.fd_ || setsockopt(out.fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(out.fd_.get(), info->ai_addr, info->ai_addrlen) != 0 || listen(out.fd_.get(), kBacklog) != 0 ||
        getsockname(out.fd_.get(), where, &size) != 0)
        return std::unexpected(errno_error("listen at", text));
    std::array<char, NI_MAXSERV> port{};
    if (getnameinfo(where, size, nullptr, 0, port.data(), port.size(), NI_NUMERICSERV) != 0)
        return failure("listen at", text, "its port is not known", EADDRNOTAVAIL);
    out.address_.port = port.data();
    return out;
}

Expected<ListeningSocket> ListeningSocket::adopt(UniqueFd socket) {
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    auto *const where = static_cast<sockaddr *>(static_cast<void *>(&bound));
    int listens = 0;
    socklen_t length = sizeof(listens);
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 ||
        getsockname(socket.get(), where, &size) != 0)
        return std::unexpected(errno_error("use", "a listening socket"));
    const int flags = fcntl(socket.get(), F_GETFL);
    if (listens == 0 || flags < 0 || fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0)
        return failure("use", "a listening socket", "it does not listen", EINVAL);
    ListeningSocket out;
    out.fd_ = std::move(socket);
    if (bound.ss_family == AF_UNIX) {
        const auto *name = static_cast<const sockaddr_un *>(static_cast<const void *>(&bound));
        const auto length_of_name = size - offsetof(sockaddr_un, sun_path);
        out.address_ = {.unix_socket = true, .host = std::string(name->sun_path, length_of_name), .port = {}};
        if (length_of_name > 0 && name->sun_path[0] == '\0')
            out.address_.host[0] = '@';
        else
            out.address_.host.resize(std::strlen(out.address_.host.c_str()));
        return out;
    }
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    if (getnameinfo(where, size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return failure("use", "a listening socket", "its address has no name", EINVAL);
    out.address_ = {.unix_socket = false, .host = host.data(), .port = port.data()};
    return out;
}

Expected<Socket> ListeningSocket::accept() const {
    UniqueFd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd)
        return std::unexpected(errno_error("accept a connection at", address_.text()));
    if (!address_.unix_socket) {
        prepare_tcp(fd.get());
        return Socket(std::move(fd));
    }
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return std::unexpected(errno_error("accept a connection at", address_.text()));
    if (peer.uid != 0 && peer.uid != geteuid())
        return failure("accept a connection at", address_.text(),
                       fmt::format("pid {} is user {}'s", peer.pid, peer.uid), EPERM);
    return Socket(std::move(fd));
}

} // namespace singularity::collectives
