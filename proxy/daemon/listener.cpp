// SPDX-License-Identifier: GPL-2.0-or-later
#include "listener.hpp"

#include "common/unix_socket.hpp"
#include "log.hpp"
#include "proxy/channel/link.hpp"

#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::proxyd {

namespace {

constexpr int kBacklog = 128;
constexpr std::chrono::seconds kToAnswerAtAll{2};
constexpr std::chrono::seconds kToLock{5};

Expected<void> make_room(const std::filesystem::path &path) {
    struct stat about{};
    if (lstat(path.c_str(), &about) != 0) {
        if (errno == ENOENT)
            return {};
        return std::unexpected(errno_error("look at", path.native()));
    }
    if (!S_ISSOCK(about.st_mode))
        return failure("listen on", path.native(), "it is there and is no socket", EEXIST);
    const auto living = channel::Link::connect(path, Deadline::after(kToAnswerAtAll));
    if (living)
        return failure("listen on", path.native(), "another daemon listens on it", EADDRINUSE);
    if (living.error().code != ECONNREFUSED)
        return failure("listen on", path.native(),
                       fmt::format("it cannot be told whether another daemon does: {}", living.error().why),
                       living.error().code);
    kLog.info("{} is left over from a daemon that is gone: it is replaced", path.native());
    if (unlink(path.c_str()) != 0 && errno != ENOENT)
        return std::unexpected(errno_error("remove", path.native()));
    return {};
}

Expected<void> lock_folder(int fd, const std::filesystem::path &folder) {
    int code = 0;
    const auto locked = [&] {
        code = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        return code != EWOULDBLOCK && code != EINTR;
    };
    if (!wait_until(locked, Deadline::after(kToLock), folder.native()))
        return failure("lock the directory", folder.native(), "another process holds a lock on it (flock)",
                       ETIMEDOUT);
    if (code != 0)
        return std::unexpected(errno_error("lock the directory", folder.native(), code));
    return {};
}

} // namespace

Expected<Listener> Listener::open(const std::filesystem::path &path) {
    // Two daemons that start at once must not both find the same socket dead.
    const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    auto lock = open_file(folder, O_RDONLY | O_DIRECTORY);
    if (!lock)
        return propagate(lock);
    if (auto locked = lock_folder(lock->get(), folder); !locked)
        return propagate(locked);
    auto room = make_room(path);
    if (!room)
        return propagate(room);
    // Who may connect is decided by who connects: another user's programs get an answer that says why not.
    auto socket = listen_unix(path, 0666, kBacklog);
    if (!socket)
        return propagate(socket);
    struct stat about{};
    if (lstat(path.c_str(), &about) != 0)
        return std::unexpected(errno_error("look at", path.native()));
    return Listener(std::move(*socket), path, about.st_dev, about.st_ino);
}

Expected<Listener> Listener::adopt(UniqueFd socket) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0)
        return failure("listen on", fmt::format("descriptor {}", socket.get()),
                       "it is not a socket that listens", EINVAL);
    if (fcntl(socket.get(), F_SETFD, FD_CLOEXEC) != 0 || fcntl(socket.get(), F_SETFL, O_NONBLOCK) != 0)
        return std::unexpected(errno_error("use", "a listening socket"));
    return Listener(std::move(socket), {}, 0, 0);
}

Listener::Listener(Listener &&other) noexcept
    : socket_(std::move(other.socket_)), path_(std::exchange(other.path_, {})), device_(other.device_),
      inode_(other.inode_) {}

Listener::~Listener() {
    struct stat about{};
    if (path_.empty() || lstat(path_.c_str(), &about) != 0 || about.st_dev != device_ ||
        about.st_ino != inode_)
        return;
    if (unlink(path_.c_str()) != 0)
        kLog.warning("{}", errno_error("remove", path_.native()).message());
}

Expected<std::optional<Listener::Connection>> Listener::accept() const {
    UniqueFd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
        // Who has hung up before being accepted is nobody's loss.
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            return std::nullopt;
        return std::unexpected(errno_error("accept a client on", path_.native()));
    }
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
        return std::unexpected(errno_error("ask who connects to", path_.native()));
    return Connection{.socket = std::move(socket), .peer = {.pid = credentials.pid, .uid = credentials.uid}};
}

} // namespace singularity::proxyd
