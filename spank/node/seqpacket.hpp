// SPDX-License-Identifier: GPL-2.0-or-later
// Packets with descriptors through a Unix socket of type SOCK_SEQPACKET. Nothing but the C and C++ libraries:
// singularity-init is made of this as well.
//
// A packet that is too large for a datagram is written to a memfd, whose descriptor follows the packet's own
// with a datagram of the type Elsewhere. The receiver copies the content, and never maps it: it belongs to
// the sender, who may be hostile. The seals show that it is a memfd and no file whose reading could block,
// and that its content and size are final.
#pragma once

#include "packet.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace singularity::node {

// In one packet: of anybody, and of who is trusted (Linux takes 253).
inline constexpr std::size_t kDescriptorLimit = 4;
inline constexpr std::size_t kTrustedDescriptorLimit = 240;

// Descriptors that came with a packet; those that nobody takes are closed.
class Descriptors {
  public:
    Descriptors() = default;
    Descriptors(Descriptors &&other) noexcept : fds_(std::exchange(other.fds_, {})) {}
    Descriptors &operator=(Descriptors &&other) noexcept {
        std::swap(fds_, other.fds_);
        return *this;
    }
    Descriptors(const Descriptors &) = delete;
    Descriptors &operator=(const Descriptors &) = delete;
    ~Descriptors();

    void add(int fd) { fds_.push_back(fd); }
    [[nodiscard]] std::size_t size() const { return fds_.size(); }
    [[nodiscard]] std::span<const int> all() const { return fds_; }
    [[nodiscard]] int take(std::size_t at) { return std::exchange(fds_[at], -1); }
    [[nodiscard]] int take_last() {
        const int fd = fds_.back();
        fds_.pop_back();
        return fd;
    }

  private:
    std::vector<int> fds_;
};

struct Packet {
    std::string bytes;
    Descriptors descriptors;
    std::string refusal; // of one that failed: what of its form is not allowed; empty: errno says why
};

enum class Received : std::uint8_t {
    packet,
    nothing,
    hung_up,
    failed
}; // failed: errno, or a packet of no allowed form

// Makes the socket take a datagram of kDatagramLimit, as far as net.core.wmem_max lets it.
void widen(int socket);

// The memfd of a packet for somebody who is not trusted, and may keep its descriptor for ever: its memory,
// which is charged to us, is given back when this goes, whether it has been read or not.
class Lent {
  public:
    Lent() = default;
    explicit Lent(int fd) : fd_(fd) {}
    Lent(Lent &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Lent &operator=(Lent &&other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    Lent(const Lent &) = delete;
    Lent &operator=(const Lent &) = delete;
    ~Lent();

    // Whose it is now must take the memory back.
    [[nodiscard]] int release() { return std::exchange(fd_, -1); }

  private:
    int fd_ = -1;
};

// Never blocks. 0, or errno: EAGAIN where the other side does not read; EMSGSIZE where the packet has more
// than kPacketLimit bytes; EFBIG where RLIMIT_FSIZE, the hard limit, does not let us write a large one.
[[nodiscard]] int send_packet(int socket, std::string_view bytes, std::span<const int> descriptors = {});
// The same, but for a packet that is too large for a datagram: EMSGSIZE.
[[nodiscard]] int send_datagram(int socket, std::string_view bytes, std::span<const int> descriptors);
// The same in a memfd, however small it is: of the socket's buffer it takes next to nothing. lent: keeps the
// memory until it goes; the receiver must allow that (Allowed::revocable).
[[nodiscard]] int send_in_memory(int socket, std::string_view bytes, std::span<const int> descriptors,
                                 Lent *lent = nullptr);
[[nodiscard]] inline int send_packet(int socket, std::string_view bytes,
                                     std::initializer_list<int> descriptors) {
    return send_packet(socket, bytes, std::span(descriptors.begin(), descriptors.size()));
}

// What a packet may be.
struct Allowed {
    std::size_t descriptors = kDescriptorLimit; // up to kTrustedDescriptorLimit
    std::size_t bytes = kPacketLimit;
    bool revocable = false; // a memfd may be without F_SEAL_SHRINK: the sender takes its memory back (Lent)
};

// Never blocks.
[[nodiscard]] Received receive_packet(int socket, Packet &into, const Allowed &allowed = {});

} // namespace singularity::node
