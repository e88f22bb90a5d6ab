// SPDX-License-Identifier: GPL-2.0-or-later
// The socket of a session: whole packets with descriptors, and the news of the other side's death.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "proxy/channel/packet.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace singularity::channel {

// Packets of a body that is one trivially copyable struct.
template <class T>
[[nodiscard]] std::span<const std::byte> body_of(const T &value) {
    return std::as_bytes(std::span(&value, 1));
}

// Any thread may send; one at a time may receive.
class Link {
  public:
    // Takes a connected SOCK_SEQPACKET socket, makes it non-blocking.
    [[nodiscard]] static Expected<Link> adopt(UniqueFd socket);
    [[nodiscard]] static Expected<Link> connect(const std::filesystem::path &path, const Deadline &deadline);

    // For poll(2): readable when receive() has something to say, a hang-up included.
    [[nodiscard]] int fd() const { return socket_.get(); }

    // Waits for room in the socket until the deadline. Descriptors stay the caller's.
    [[nodiscard]] Expected<void> send(PacketType type, std::uint64_t ticket, std::span<const std::byte> body,
                                      std::span<const int> descriptors, const Deadline &deadline);
    template <class Body>
    [[nodiscard]] Expected<void> send_struct(PacketType type, std::uint64_t ticket, const Body &body,
                                             const Deadline &deadline) {
        return send(type, ticket, body_of(body), {}, deadline);
    }

    // Nothing there: nullopt at once. An error means that the session is over: the other side has hung up
    // (code ECONNRESET) or broken the rules (code EPROTO).
    [[nodiscard]] Expected<std::optional<Packet>> receive();
    // Waits for the next packet.
    [[nodiscard]] Expected<Packet> receive(const Deadline &deadline);

    // Packets sent so far; a daemon puts it into its replies.
    [[nodiscard]] std::uint64_t sent() const { return sender_->sent.load(std::memory_order_acquire); }

    // Packets that were sent to the same client over an earlier socket.
    void count_from(std::uint64_t sent) { sender_->sent.store(sent, std::memory_order_release); }

    // Until the other side has closed its socket, whatever it has sent before. False: it has not in time.
    [[nodiscard]] bool await_hang_up(const Deadline &deadline) const;

    // Nobody else uses the link.
    void close();
    // Goes on with another one's socket.
    void take_over(Link other);

    // From any thread: the other side and whoever polls here see a hang-up.
    void shut_down() const noexcept;

  private:
    // Apart, so that a Link can be moved.
    struct Sender {
        std::mutex order;
        std::atomic<std::uint64_t> sent = 0;
    };

    explicit Link(UniqueFd socket) : socket_(std::move(socket)), sender_(std::make_unique<Sender>()) {}

    UniqueFd socket_;
    std::unique_ptr<Sender> sender_;
};

// The body of a packet as a struct; refuses another size. T comes from the other side: check its members.
template <class T>
[[nodiscard]] Expected<T> struct_of(const Packet &packet) {
    if (packet.body.size() != sizeof(T))
        return failure("read", "a packet's body",
                       "it has " + std::to_string(packet.body.size()) + " bytes; " +
                           std::to_string(sizeof(T)) + " were expected",
                       EPROTO);
    T value{};
    std::memcpy(&value, packet.body.data(), sizeof(T));
    return value;
}

} // namespace singularity::channel
