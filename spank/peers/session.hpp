// SPDX-License-Identifier: GPL-2.0-or-later
// One direction of a connection whose sides have proved themselves: every message is encrypted with
// AES-256-GCM (NIST SP 800-38D), and is believed only if it is the next one. Its number is the nonce and is
// not sent: both sides count.
#pragma once

#include "common/error.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace singularity::peers {

inline constexpr std::size_t kKeySize = 32;
inline constexpr std::size_t kTagSize = 16;
inline constexpr std::size_t kSealedLimitOver = kTagSize; // above the message itself

// From OpenSSL's generator.
[[nodiscard]] Expected<std::string> random_bytes(std::size_t count);

// Of one direction of one connection. It is wiped from memory when it goes.
class SessionKey {
  public:
    SessionKey() = default;
    SessionKey(const SessionKey &) = default;
    SessionKey &operator=(const SessionKey &) = default;
    SessionKey(SessionKey &&) = default;
    SessionKey &operator=(SessionKey &&) = default;
    ~SessionKey();

    [[nodiscard]] std::span<const std::uint8_t, kKeySize> bytes() const { return bytes_; }
    [[nodiscard]] std::span<std::uint8_t, kKeySize> bytes() { return bytes_; }

  private:
    std::array<std::uint8_t, kKeySize> bytes_{};
};

// A key for each direction: a message sent back to its sender is none.
struct SessionKeys {
    SessionKey from_caller;
    SessionKey from_called;
};

class Sealer {
  public:
    explicit Sealer(SessionKey key) : key_(std::move(key)) {}
    // The frame's content: the encrypted message, and the tag by which it is believed.
    [[nodiscard]] Expected<std::string> seal(std::string_view message);

  private:
    SessionKey key_;
    std::uint64_t next_ = 0;
};

class Opener {
  public:
    explicit Opener(SessionKey key) : key_(std::move(key)) {}
    // The message; EBADMSG: it is not what the other side has sent next.
    [[nodiscard]] Expected<std::string> open(std::string_view sealed);

  private:
    SessionKey key_;
    std::uint64_t next_ = 0;
};

} // namespace singularity::peers
