// SPDX-License-Identifier: GPL-2.0-or-later
// Byte streams between processes: Unix sockets on a host, TCP between hosts. All waiting has a limit, of time
// in which this process was able to wait.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <sys/uio.h>

namespace singularity::collectives {

// "unix:PATH", "unix:@ABSTRACT" or "tcp:HOST:PORT" (a host with colons in brackets).
struct Address {
    bool unix_socket = false;
    std::string host; // or the path
    std::string port;
    [[nodiscard]] std::string text() const;
    [[nodiscard]] static Expected<Address> parse(const std::string &text);
};

// The longest time without a byte from the other side, however long all of them take. It begins with each
// wait: a process that was stopped in the middle of a message has missed nothing.
struct Silence {
    std::chrono::milliseconds most;
};

class Socket {
  public:
    Socket() = default;
    explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}

    [[nodiscard]] static Expected<Socket> connect(const Address &address, const Deadline &deadline);
    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] explicit operator bool() const { return static_cast<bool>(fd_); }

    // Of who is at the other end, as numbers; empty for a Unix socket.
    [[nodiscard]] std::string peer_address() const;

    // All of it, or an error. Of a receive: ECONNRESET where the other side has hung up.
    [[nodiscard]] Expected<void> send(std::span<iovec> parts, const Deadline &deadline, int descriptor = -1);
    [[nodiscard]] Expected<void> send(std::span<const std::byte> bytes, const Deadline &deadline);
    [[nodiscard]] Expected<void> receive(std::span<std::byte> bytes, const Deadline &deadline,
                                         UniqueFd *descriptor = nullptr);
    [[nodiscard]] Expected<void> send(std::span<iovec> parts, Silence silence, int descriptor = -1);
    [[nodiscard]] Expected<void> receive(std::span<std::byte> bytes, Silence silence,
                                         UniqueFd *descriptor = nullptr);
    // Ends every send and receive.
    void shut_down() const;

  private:
    // `until()` is the deadline of one wait.
    template <typename Until>
    [[nodiscard]] Expected<void> send_all(std::span<iovec> parts, int descriptor, Until until);
    template <typename Until>
    [[nodiscard]] Expected<void> receive_all(std::span<std::byte> bytes, UniqueFd *descriptor, Until until);
    UniqueFd fd_;
};

class ListeningSocket {
  public:
    // Port 0, and "unix:@" without a name: what is free.
    [[nodiscard]] static Expected<ListeningSocket> open(const Address &address);
    // One that listens already.
    [[nodiscard]] static Expected<ListeningSocket> adopt(UniqueFd socket);
    [[nodiscard]] int fd() const { return fd_.get(); }
    // Where it really listens.
    [[nodiscard]] const Address &address() const { return address_; }
    // An error: nobody is there, or one of another user on this host.
    [[nodiscard]] Expected<Socket> accept() const;

  private:
    UniqueFd fd_;
    Address address_;
};

} // namespace singularity::collectives
