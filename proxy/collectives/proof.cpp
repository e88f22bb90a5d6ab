// SPDX-License-Identifier: GPL-2.0-or-later
#include "proof.hpp"

#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <unistd.h>

namespace singularity::collectives {

namespace {

constexpr std::uint64_t kMagic = 0x0031'4C4C'4F43'4753; // "SGCOLL1"

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

struct Hello {
    std::uint64_t magic = kMagic;
    std::uint32_t version = 1;
    std::uint32_t purpose = 0;
    Nonce nonce{};
};
struct Challenge {
    Nonce nonce{};
    Proof proof{};
};

template <class T>
std::span<std::byte> bytes_of(T &value) {
    return std::as_writable_bytes(std::span(&value, 1));
}
unsigned char *raw(std::byte *bytes) { return static_cast<unsigned char *>(static_cast<void *>(bytes)); }

Expected<void> fill(std::span<std::byte> bytes) {
    if (RAND_bytes(raw(bytes.data()), static_cast<int>(bytes.size())) != 1)
        return failure("make", "random bytes", "OpenSSL has none", EIO);
    return {};
}

Expected<Proof> proof_of(const JobKey &key, std::string_view who, const Hello &hello, const Nonce &listener) {
    struct {
        std::array<char, 8> who{};
        Hello hello;
        Nonce listener{};
    } text{.hello = hello, .listener = listener};
    std::memcpy(text.who.data(), who.data(), std::min(who.size(), text.who.size()));
    Proof proof{};
    unsigned size = 0;
    const auto bytes = bytes_of(text);
    if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), raw(bytes.data()), bytes.size(),
             raw(proof.data()), &size) == nullptr ||
        size != proof.size())
        return failure("prove", "knowledge of the job's key", "OpenSSL refuses", EIO);
    return proof;
}

Expected<void> check(const Proof &theirs, const Expected<Proof> &right) {
    if (!right)
        return std::unexpected(right.error());
    if (CRYPTO_memcmp(theirs.data(), right->data(), theirs.size()) != 0)
        return failure("accept", "a peer", "it does not know the job's key", EACCES);
    return {};
}

} // namespace

Expected<JobKey> make_job_key() {
    JobKey key{};
    if (auto filled = fill(key); !filled)
        return propagate(filled);
    return key;
}

Expected<JobKey> read_job_key(int descriptor) {
    JobKey key{};
    std::size_t got = 0;
    std::array<std::byte, 1> more{};
    for (;;) {
        const auto room = got < key.size() ? std::span(key).subspan(got) : std::span<std::byte>(more);
        const auto size = read(descriptor, room.data(), room.size());
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0)
            return std::unexpected(errno_error("read", "the job's key"));
        if (size == 0 && got == key.size())
            return key;
        got += static_cast<std::size_t>(size);
        if (size == 0 || got > key.size())
            return failure("read", "the job's key", fmt::format("it does not have {} bytes", key.size()),
                           EINVAL);
    }
}

Expected<void> prove_as_caller(Socket &socket, const JobKey &key, Purpose purpose, const Deadline &deadline) {
    Hello hello{.purpose = static_cast<std::uint32_t>(purpose)};
    if (auto filled = fill(hello.nonce); !filled)
        return filled;
    if (auto sent = socket.send(bytes_of(hello), deadline); !sent)
        return sent;
    Challenge challenge;
    if (auto got = socket.receive(bytes_of(challenge), deadline); !got)
        return got;
    if (auto right = check(challenge.proof, proof_of(key, "listener", hello, challenge.nonce)); !right)
        return right;
    auto mine = proof_of(key, "caller", hello, challenge.nonce);
    if (!mine)
        return propagate(mine);
    return socket.send(*mine, deadline);
}

Expected<void> prove_as_listener(Socket &socket, const JobKey &key, Purpose purpose,
                                 const Deadline &deadline) {
    Hello hello;
    if (auto got = socket.receive(bytes_of(hello), deadline); !got)
        return got;
    if (hello.magic != kMagic || hello.version != 1 || hello.purpose != static_cast<std::uint32_t>(purpose))
        return failure("accept", "a peer", "it speaks another language", EPROTO);
    Challenge challenge;
    if (auto filled = fill(challenge.nonce); !filled)
        return filled;
    const auto mine = proof_of(key, "listener", hello, challenge.nonce);
    if (!mine)
        return std::unexpected(mine.error());
    challenge.proof = *mine;
    if (auto sent = socket.send(bytes_of(challenge), deadline); !sent)
        return sent;
    Proof theirs{};
    if (auto got = socket.receive(theirs, deadline); !got)
        return got;
    return check(theirs, proof_of(key, "caller", hello, challenge.nonce));
}

void end_proofs_of_thread() noexcept { OPENSSL_thread_stop(); }

} // namespace singularity::collectives
