// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/unix_socket.hpp"

#include <cerrno>
#include <utility>

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity {

Expected<sockaddr_un> unix_address(const std::filesystem::path &path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const auto &text = path.native();
    if (text.empty() || text.size() >= sizeof(address.sun_path))
        return failure("use as a socket", text,
                       fmt::format("a path of 1 to {} bytes is possible, this one has {}",
                                   sizeof(address.sun_path) - 1, text.size()),
                       ENAMETOOLONG);
    text.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
}

namespace {

struct Addressed {
    sockaddr_un address;
    UniqueFd socket;

    [[nodiscard]] const sockaddr *generic() const { return reinterpret_cast<const sockaddr *>(&address); }
};

Expected<Addressed> socket_for(const std::filesystem::path &path) {
    auto address = unix_address(path);
    if (!address)
        return propagate(address);
    UniqueFd made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made)
        return std::unexpected(errno_error("make a socket for", path.native()));
    return Addressed{.address = *address, .socket = std::move(made)};
}

} // namespace

Expected<UniqueFd> connect_unix(const std::filesystem::path &path, const Deadline &deadline) {
    auto made = socket_for(path);
    if (!made)
        return propagate(made);
    // connect(2) says EAGAIN where the backlog is full, and poll(2) does not tell when it no longer is.
    int code = 0;
    const auto connected = [&] {
        code = ::connect(made->socket.get(), made->generic(), sizeof(made->address)) == 0 ? 0 : errno;
        return code != EAGAIN && code != EINTR;
    };
    if (auto waited = wait_until(connected, deadline, path.native()); !waited)
        return propagate(waited);
    if (code != 0)
        return std::unexpected(errno_error("connect to", path.native(), code));
    return std::move(made->socket);
}

Expected<UniqueFd> listen_unix(const std::filesystem::path &path, mode_t mode, int backlog) {
    auto made = socket_for(path);
    if (!made)
        return propagate(made);
    if (unlink(path.c_str()) != 0 && errno != ENOENT)
        return std::unexpected(errno_error("remove the old", path.native()));
    // Nobody is let in before listen(2), so nobody by the mode that it has at first.
    if (bind(made->socket.get(), made->generic(), sizeof(made->address)) != 0 ||
        chmod(path.c_str(), mode) != 0 || listen(made->socket.get(), backlog) != 0)
        return std::unexpected(errno_error("listen on", path.native()));
    return std::move(made->socket);
}

} // namespace singularity
