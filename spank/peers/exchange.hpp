// SPDX-License-Identifier: GPL-2.0-or-later
// How two sides of a connection come to keys that nobody else knows: X25519 (RFC 7748), with keys that live
// for one handshake, and HKDF-SHA256 (RFC 5869). It proves nothing about the other side: the handshake does.
#pragma once

#include "common/error.hpp"
#include "session.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

struct evp_pkey_st; // OpenSSL's EVP_PKEY

namespace singularity::peers {

inline constexpr std::size_t kShareSize = 32;

class Exchange {
  public:
    // With a new key.
    [[nodiscard]] static Expected<Exchange> begin();

    // The public half, for the other side to see.
    [[nodiscard]] const std::string &share() const { return share_; }
    // transcript: all that both sides have said to each other. If it is not the same for both, keys differ.
    [[nodiscard]] Expected<SessionKeys> keys(std::string_view peer_share, std::string_view transcript) const;

  private:
    struct FreeKey {
        void operator()(evp_pkey_st *key) const; // wipes it
    };
    using Key = std::unique_ptr<evp_pkey_st, FreeKey>;
    Exchange(Key key, std::string share) : key_(std::move(key)), share_(std::move(share)) {}

    Key key_;
    std::string share_;
};

} // namespace singularity::peers
