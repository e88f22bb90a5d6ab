// SPDX-License-Identifier: GPL-2.0-or-later
// Packets with descriptors through a Unix socket of type SOCK_SEQPACKET. Nothing but the C and C++ libraries:
// singularity-init is made of this as well.
#pragma once

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

  private:
    std::vector<int> fds_;
};

struct Packet {
    std::string bytes;
    Descriptors descriptors;
};

enum class Received : std::uint8_t {
    packet,
    nothing,
    hung_up,
    failed
}; // failed: errno, or a packet of no allowed form

// Makes the socket take a packet of kPacketLimit, as far as net.core.wmem_max lets it.
void widen(int socket);

// Never blocks. 0, or errno: EAGAIN where the other side does not read.
[[nodiscard]] int send_packet(int socket, std::string_view bytes, std::span<const int> descriptors = {});
[[nodiscard]] inline int send_packet(int socket, std::string_view bytes,
                                     std::initializer_list<int> descriptors) {
    return send_packet(socket, bytes, std::span(descriptors.begin(), descriptors.size()));
}

// Never blocks. A packet with more descriptors than most (up to kTrustedDescriptorLimit) is of no allowed
// form.
[[nodiscard]] Received receive_packet(int socket, Packet &into, std::size_t most = kDescriptorLimit);

} // namespace singularity::node
