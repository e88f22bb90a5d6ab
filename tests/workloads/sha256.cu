// SPDX-License-Identifier: GPL-2.0-or-later
// SHA-256 (FIPS 180-4) of many messages of different lengths, a thread for each; the rounds' constants are in
// constant memory. Two digests of the standard are checked too. Argument: messages.
#include "workload.cuh"

#define ROUND_CONSTANTS                                                                                      \
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,          \
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,      \
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,      \
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,      \
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,      \
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,      \
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,      \
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2

__constant__ std::uint32_t device_constants[64] = {ROUND_CONSTANTS};

struct Digest {
    std::uint32_t words[8];
};

__host__ __device__ inline std::uint32_t constant(int round) {
#ifdef __CUDA_ARCH__
    return device_constants[round];
#else
    static const std::uint32_t constants[64] = {ROUND_CONSTANTS};
    return constants[round];
#endif
}

__host__ __device__ inline std::uint32_t turn(std::uint32_t word, int bits) {
    return (word >> bits) | (word << (32 - bits));
}

__host__ __device__ inline void compress(std::uint32_t (&hash)[8], std::uint32_t (&w)[16]) {
    std::uint32_t s[8];
    for (int i = 0; i < 8; ++i)
        s[i] = hash[i];
    for (int round = 0; round < 64; ++round) {
        if (round >= 16) {
            const std::uint32_t a = w[(round + 1) % 16];
            const std::uint32_t b = w[(round + 14) % 16];
            w[round % 16] += (turn(a, 7) ^ turn(a, 18) ^ (a >> 3)) + w[(round + 9) % 16] +
                             (turn(b, 17) ^ turn(b, 19) ^ (b >> 10));
        }
        const std::uint32_t one = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) +
                                  ((s[4] & s[5]) ^ (~s[4] & s[6])) + constant(round) + w[round % 16];
        const std::uint32_t two = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
                                  ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        for (int i = 7; i > 0; --i)
            s[i] = s[i - 1];
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; ++i)
        hash[i] += s[i];
}

__host__ __device__ inline Digest digest(const unsigned char *message, std::uint32_t length) {
    std::uint32_t hash[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const std::uint32_t blocks = (length + 9 + 63) / 64;
    for (std::uint32_t block = 0; block < blocks; ++block) {
        std::uint32_t w[16];
        for (std::uint32_t i = 0; i < 16; ++i) {
            w[i] = 0;
            for (std::uint32_t j = 0; j < 4; ++j) {
                const std::uint32_t at = block * 64 + i * 4 + j;
                const std::uint32_t byte = at < length ? message[at] : at == length ? 0x80U : 0U;
                w[i] = (w[i] << 8) | byte;
            }
        }
        if (block + 1 == blocks)
            w[15] = length * 8;
        compress(hash, w);
    }
    Digest result;
    for (int i = 0; i < 8; ++i)
        result.words[i] = hash[i];
    return result;
}

struct Message {
    std::uint32_t start, length;
};

__global__ void digests(const unsigned char *text, const Message *messages, Digest *results, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        results[i] = digest(text + messages[i].start, messages[i].length);
}

std::string words(const Digest &digest) {
    std::string text;
    for (const std::uint32_t word : digest.words) {
        char part[9];
        std::snprintf(part, sizeof part, "%08x", word);
        text += part;
    }
    return text;
}

int main(int argc, char **argv) {
    const auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 1500, 1U << 22)) + 2;
    workload::Random random(67);
    std::vector<unsigned char> text;
    std::vector<Message> messages;
    const auto append = [&](const std::string &message) {
        messages.push_back(
            {static_cast<std::uint32_t>(text.size()), static_cast<std::uint32_t>(message.size())});
        text.insert(text.end(), message.begin(), message.end());
    };
    append("abc");
    append("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq");
    while (messages.size() < count) {
        std::string message(random.below(200), '\0');
        for (char &letter : message)
            letter = static_cast<char>(random.below(256));
        append(message);
    }
    std::vector<std::uint32_t> expected;
    for (const Message &message : messages) {
        const Digest own = digest(text.data() + message.start, message.length);
        expected.insert(expected.end(), own.words, own.words + 8);
    }

    workload::Report report;
    workload::Buffer<unsigned char> device_text(text);
    workload::Buffer<Message> device_messages(messages);
    workload::Buffer<Digest> results(count);
    digests<<<workload::blocks_for(count, 64), 64>>>(device_text.data(), device_messages.data(),
                                                     results.data(), count);
    CHECK_LAUNCH();
    const std::vector<Digest> found = results.read();
    report.text("abc", words(found[0]).c_str());
    report.expect(words(found[0]) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" &&
                      words(found[1]) == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
                  "the standard's examples");
    std::vector<std::uint32_t> flat;
    for (const Digest &one : found)
        flat.insert(flat.end(), one.words, one.words + 8);
    report.equal("digests", flat, expected);
    return report.finish();
}
