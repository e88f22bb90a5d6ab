// SPDX-License-Identifier: GPL-2.0-or-later
#include "exchange.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

namespace singularity::peers {

namespace {

constexpr std::size_t kSecretSize = 32;
constexpr std::size_t kDigestSize = 32;
// What a key is for, and of which version of the protocol: HKDF's info.
constexpr std::string_view kFromCaller = "singularity peers 2: from caller";
constexpr std::string_view kFromCalled = "singularity peers 2: from called";

struct FreeKeyContext {
    void operator()(EVP_PKEY_CTX *context) const { EVP_PKEY_CTX_free(context); }
};
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, FreeKeyContext>;

const std::uint8_t *exchange_input(std::string_view text) {
    return reinterpret_cast<const std::uint8_t *>(text.data());
}

struct Secret {
    Secret() = default;
    Secret(const Secret &) = delete;
    Secret &operator=(const Secret &) = delete;
    Secret(Secret &&) = delete;
    Secret &operator=(Secret &&) = delete;
    ~Secret() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
    std::array<std::uint8_t, kSecretSize> bytes{};
};

Expected<void> derive_key(const Secret &secret, std::span<const std::uint8_t> salt, std::string_view info,
                          SessionKey &out) {
    const KeyContext context(EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr));
    std::size_t size = kKeySize;
    if (!context || EVP_PKEY_derive_init(context.get()) != 1 ||
        EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) != 1 ||
        EVP_PKEY_CTX_set1_hkdf_key(context.get(), secret.bytes.data(), kSecretSize) != 1 ||
        EVP_PKEY_CTX_set1_hkdf_salt(context.get(), salt.data(), static_cast<int>(salt.size())) != 1 ||
        EVP_PKEY_CTX_add1_hkdf_info(context.get(), exchange_input(info), static_cast<int>(info.size())) !=
            1 ||
        EVP_PKEY_derive(context.get(), out.bytes().data(), &size) != 1 || size != kKeySize)
        return failure("derive", "the key of a connection", "OpenSSL refuses HKDF-SHA256", EIO);
    return {};
}

} // namespace

void Exchange::FreeKey::operator()(EVP_PKEY *key) const { EVP_PKEY_free(key); }

Expected<Exchange> Exchange::begin() {
    Key key(EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519"));
    std::string share(kShareSize, '\0');
    std::size_t size = share.size();
    if (!key ||
        EVP_PKEY_get_raw_public_key(key.get(), reinterpret_cast<std::uint8_t *>(share.data()), &size) != 1 ||
        size != kShareSize)
        return failure("make", "a key for a connection",
                       "OpenSSL refuses X25519; hosts in FIPS mode may not allow it", EIO);
    return Exchange(std::move(key), std::move(share));
}

Expected<SessionKeys> Exchange::keys(std::string_view peer_share, std::string_view transcript) const {
    const Key peer(
        EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, exchange_input(peer_share), peer_share.size()));
    const KeyContext context(EVP_PKEY_CTX_new(key_.get(), nullptr));
    Secret secret;
    std::size_t size = kSecretSize;
    // A share of low order, which makes a secret of zeros, is refused (RFC 7748, section 6.1).
    if (!peer || !context || EVP_PKEY_derive_init(context.get()) != 1 ||
        EVP_PKEY_derive_set_peer(context.get(), peer.get()) != 1 ||
        EVP_PKEY_derive(context.get(), secret.bytes.data(), &size) != 1 || size != kSecretSize)
        return failure("agree on", "the key of a connection", "the other side's share of it is none",
                       EBADMSG);
    std::array<std::uint8_t, kDigestSize> salt{};
    if (EVP_Digest(transcript.data(), transcript.size(), salt.data(), nullptr, EVP_sha256(), nullptr) != 1)
        return failure("derive", "the key of a connection", "OpenSSL refuses SHA-256", EIO);
    SessionKeys out;
    for (auto &[info, key] : {std::pair<std::string_view, SessionKey *>{kFromCaller, &out.from_caller},
                              std::pair<std::string_view, SessionKey *>{kFromCalled, &out.from_called}})
        if (auto derived = derive_key(secret, salt, info, *key); !derived)
            return propagate(derived);
    return out;
}

} // namespace singularity::peers
