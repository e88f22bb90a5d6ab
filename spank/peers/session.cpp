// SPDX-License-Identifier: GPL-2.0-or-later
#include "session.hpp"

#include <limits>
#include <memory>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

namespace singularity::peers {

namespace {

constexpr std::size_t kNonceSize = 12;

struct FreeCipher {
    void operator()(EVP_CIPHER_CTX *context) const { EVP_CIPHER_CTX_free(context); } // wipes the key in it
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

// 96 bits whose last 64 are the number: no two messages under one key have the same.
std::array<std::uint8_t, kNonceSize> nonce_of(std::uint64_t number) {
    std::array<std::uint8_t, kNonceSize> out{};
    for (std::size_t at = 0; at < sizeof(number); ++at)
        out[kNonceSize - 1 - at] = static_cast<std::uint8_t>(number >> (8 * at));
    return out;
}

const std::uint8_t *cipher_input(std::string_view text) {
    return reinterpret_cast<const std::uint8_t *>(text.data());
}
std::uint8_t *cipher_output(std::string &text) { return reinterpret_cast<std::uint8_t *>(text.data()); }

std::unexpected<Error> cipher_failed(std::string doing) {
    return failure(std::move(doing), "a message", "OpenSSL refuses AES-256-GCM", EIO);
}

Expected<void> check_number(std::uint64_t number) {
    if (number == std::numeric_limits<std::uint64_t>::max())
        return failure("number", "a message", "there are no more numbers", EOVERFLOW);
    return {};
}

} // namespace

Expected<std::string> random_bytes(std::size_t count) {
    std::string out(count, '\0');
    if (RAND_bytes(reinterpret_cast<std::uint8_t *>(out.data()), static_cast<int>(count)) != 1)
        return failure("get", "random numbers", "OpenSSL has none", EIO);
    return out;
}

SessionKey::~SessionKey() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Expected<std::string> Sealer::seal(std::string_view message) {
    if (auto checked = check_number(next_); !checked)
        return propagate(checked);
    const Cipher cipher(EVP_CIPHER_CTX_new());
    const auto nonce = nonce_of(next_);
    std::string out(message.size() + kTagSize, '\0');
    int size = 0;
    int rest = 0;
    if (!cipher ||
        EVP_EncryptInit_ex2(cipher.get(), EVP_aes_256_gcm(), key_.bytes().data(), nonce.data(), nullptr) !=
            1 ||
        EVP_EncryptUpdate(cipher.get(), cipher_output(out), &size, cipher_input(message),
                          static_cast<int>(message.size())) != 1 ||
        EVP_EncryptFinal_ex(cipher.get(), cipher_output(out) + size, &rest) != 1 ||
        EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_AEAD_GET_TAG, kTagSize,
                            cipher_output(out) + message.size()) != 1)
        return cipher_failed("encrypt");
    ++next_;
    return out;
}

Expected<std::string> Opener::open(std::string_view sealed) {
    if (auto checked = check_number(next_); !checked)
        return propagate(checked);
    const auto refuse = [](std::string why) {
        return failure("believe", "a message", std::move(why), EBADMSG);
    };
    if (sealed.size() < kTagSize)
        return refuse(fmt::format("its {} bytes have no room for a tag of {}", sealed.size(), kTagSize));
    const auto text = sealed.substr(0, sealed.size() - kTagSize);
    std::string tag(sealed.substr(text.size()));
    const Cipher cipher(EVP_CIPHER_CTX_new());
    const auto nonce = nonce_of(next_);
    std::string out(text.size(), '\0');
    int size = 0;
    int rest = 0;
    if (!cipher ||
        EVP_DecryptInit_ex2(cipher.get(), EVP_aes_256_gcm(), key_.bytes().data(), nonce.data(), nullptr) !=
            1 ||
        EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_AEAD_SET_TAG, kTagSize, tag.data()) != 1 ||
        EVP_DecryptUpdate(cipher.get(), cipher_output(out), &size, cipher_input(text),
                          static_cast<int>(text.size())) != 1)
        return cipher_failed("decrypt");
    if (EVP_DecryptFinal_ex(cipher.get(), cipher_output(out) + size, &rest) != 1) {
        OPENSSL_cleanse(out.data(), out.size());
        return refuse(fmt::format(
            "it does not authenticate as number {} of what the other side has sent: it was changed "
            "or sent again, one was left out, or it is of another connection",
            next_));
    }
    ++next_;
    return out;
}

} // namespace singularity::peers
