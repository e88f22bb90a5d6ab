// SPDX-License-Identifier: GPL-2.0-or-later
#include "session.hpp"

#include <limits>
#include <optional>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

namespace singularity::peers {

namespace {

constexpr std::size_t kNumberSize = sizeof(std::uint64_t);

using Seal = std::array<std::uint8_t, kSealSize>;

const std::uint8_t *bytes_of(std::string_view text) {
    return reinterpret_cast<const std::uint8_t *>(text.data());
}

Expected<Seal> hmac(std::string_view key, std::string_view text) {
    Seal out{};
    unsigned size = 0;
    if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(text), text.size(), out.data(),
             &size) == nullptr ||
        size != out.size())
        return failure("compute", "an HMAC-SHA256", "OpenSSL refuses", EIO);
    return out;
}

std::string_view view(const SessionKey &key) {
    return {reinterpret_cast<const char *>(key.data()), key.size()};
}

std::string big_endian(std::uint64_t value) {
    std::string out;
    for (std::size_t at = 0; at < kNumberSize; ++at)
        out += static_cast<char>(value >> (8 * (kNumberSize - 1 - at)) & 0xff);
    return out;
}

// Of the number and the message: the seal itself lies between them in a frame.
Expected<Seal> seal_of(const SessionKey &key, std::string_view number, std::string_view message) {
    std::string text(number);
    text.append(message);
    return hmac(view(key), text);
}

} // namespace

Expected<std::string> random_bytes(std::size_t count) {
    std::string out(count, '\0');
    if (RAND_bytes(reinterpret_cast<std::uint8_t *>(out.data()), static_cast<int>(count)) != 1)
        return failure("get", "random numbers", "OpenSSL has none", EIO);
    return out;
}

Expected<SessionKey> key_of(const Agreement &agreement, bool from_caller) {
    const std::string secret = agreement.caller_key + agreement.called_key;
    const std::string text = (from_caller ? "singularity from caller" : "singularity from called") +
                             agreement.caller_nonce + agreement.called_nonce;
    static_assert(std::tuple_size_v<Seal> == std::tuple_size_v<SessionKey>);
    return hmac(secret, text);
}

Expected<std::string> Sealer::seal(std::string_view message) {
    if (next_ == std::numeric_limits<std::uint64_t>::max())
        return failure("number", "a message", "there are no more numbers", EOVERFLOW);
    auto out = big_endian(next_);
    auto seal = seal_of(key_, out, message);
    if (!seal)
        return propagate(seal);
    ++next_;
    out.append(reinterpret_cast<const char *>(seal->data()), seal->size());
    return out.append(message);
}

Expected<std::string> Opener::open(std::string_view sealed) {
    const auto refuse = [](std::string why) {
        return failure("believe", "a message", std::move(why), EBADMSG);
    };
    if (sealed.size() < kNumberSize + kSealSize)
        return refuse(fmt::format("its {} bytes have no room for number and seal", sealed.size()));
    const auto number = sealed.substr(0, kNumberSize);
    const auto message = sealed.substr(kNumberSize + kSealSize);
    auto expected = seal_of(key_, number, message);
    if (!expected)
        return propagate(expected);
    if (CRYPTO_memcmp(expected->data(), sealed.data() + kNumberSize, kSealSize) != 0)
        return refuse("its seal was made with another key, or it has been changed");
    if (number != big_endian(next_))
        return refuse(fmt::format("its number is not {}: one is missing, or was sent again", next_));
    ++next_;
    return std::string(message);
}

} // namespace singularity::peers
