// SPDX-License-Identifier: GPL-2.0-or-later
// One direction of a connection whose sides have proved themselves: every message gets its number and a seal
// (HMAC-SHA256), and is believed only if both are the next ones.
#pragma once

#include "common/error.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace singularity::peers {

inline constexpr std::size_t kNonceSize = 32;
inline constexpr std::size_t kKeySize = 32;
inline constexpr std::size_t kSealSize = 32;
inline constexpr std::size_t kSealedLimitOver = sizeof(std::uint64_t) + kSealSize; // above the message itself

using SessionKey = std::array<std::uint8_t, kKeySize>;

// From OpenSSL's generator.
[[nodiscard]] Expected<std::string> random_bytes(std::size_t count);

// What only the two sides of this one connection know.
struct Agreement {
    std::string caller_nonce;
    std::string called_nonce;
    std::string caller_key;
    std::string called_key;
};
// A key for each direction: a message sent back to its sender is none.
[[nodiscard]] Expected<SessionKey> key_of(const Agreement &agreement, bool from_caller);

class Sealer {
  public:
    explicit Sealer(const SessionKey &key) : key_(key) {}
    // The frame's content: number, seal, message.
    [[nodiscard]] Expected<std::string> seal(std::string_view message);

  private:
    SessionKey key_;
    std::uint64_t next_ = 0;
};

class Opener {
  public:
    explicit Opener(const SessionKey &key) : key_(key) {}
    // The message; EBADMSG: it is not what the other side has sent next.
    [[nodiscard]] Expected<std::string> open(std::string_view sealed);

  private:
    SessionKey key_;
    std::uint64_t next_ = 0;
};

} // namespace singularity::peers
