// SPDX-License-Identifier: GPL-2.0-or-later
// The socket that clients connect to: made, kept unique, taken away again.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "session.hpp"

#include <filesystem>
#include <optional>

#include <sys/types.h>

namespace singularity::proxyd {

class Listener {
  public:
    // Refuses where somebody listens; takes the place of a socket that nobody listens on.
    [[nodiscard]] static Expected<Listener> open(const std::filesystem::path &path);

    // A socket that listens already; who has made it also removes it.
    [[nodiscard]] static Expected<Listener> adopt(UniqueFd socket);

    Listener(Listener &&other) noexcept;
    Listener &operator=(Listener &&) = delete;
    Listener(const Listener &) = delete;
    Listener &operator=(const Listener &) = delete;
    // Removes the socket, if it is still the one that was made.
    ~Listener();

    [[nodiscard]] int fd() const { return socket_.get(); }

    struct Connection {
        UniqueFd socket;
        Peer peer;
    };
    // nullopt: nobody waits any more.
    [[nodiscard]] Expected<std::optional<Connection>> accept() const;

  private:
    Listener(UniqueFd socket, std::filesystem::path path, dev_t device, ino_t inode)
        : socket_(std::move(socket)), path_(std::move(path)), device_(device), inode_(inode) {}

    UniqueFd socket_;
    std::filesystem::path path_; // empty: moved from, or not ours to remove
    dev_t device_;
    ino_t inode_;
};

} // namespace singularity::proxyd
