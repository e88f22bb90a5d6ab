// SPDX-License-Identifier: GPL-2.0-or-later
#include "integrity.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace singularity::libcuda {

namespace {

// RFC 1319, section 3.2: a permutation of 0..255 made from the digits of pi, by the shuffle of the RFC's
// appendix: for i = 2..256, swap S[i-1] with S[rand(i)], where rand draws bytes from the digits. Written out.
constexpr std::array<std::uint8_t, 256> kPi{
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,   243,
    192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212, 224, 22,
    103, 66,  111, 24,  138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160, 251, 245, 142,
    187, 47,  238, 122, 169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137, 11,  34,  95,  33,
    128, 127, 93,  154, 90,  144, 50,  39,  53,  62,  204, 231, 191, 247, 151, 3,   255, 25,  48,  179,
    72,  165, 181, 209, 215, 94,  146, 42,  172, 86,  170, 198, 79,  184, 56,  210, 150, 164, 125, 182,
    118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,  100, 113, 135, 32,  134, 91,  207, 101,
    230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246, 28,  70,  97,  105, 52,  64,  126, 15,
    85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249, 206, 186, 197, 234, 38,  44,  83,  13,  110,
    133, 40,  132, 9,   211, 223, 205, 244, 65,  129, 77,  82,  106, 220, 55,  200, 108, 193, 171, 250,
    36,  225, 123, 8,   12,  189, 177, 74,  120, 136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254,
    59,  0,   29,  57,  242, 239, 183, 14,  102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,
    49,  68,  80,  180, 143, 237, 31,  26,  219, 153, 141, 51,  159, 17,  131, 20};

constexpr std::size_t kBlock = 16;
constexpr unsigned kRounds = 18;

constexpr Digest kKey = [] {
    constexpr std::array<unsigned char, 16> kBytes{0x14, 0x6A, 0xDD, 0xAE, 0x53, 0xA9, 0xA7, 0x52,
                                                   0xAA, 0x08, 0x41, 0x36, 0x0B, 0xF5, 0x5A, 0x9F};
    return std::bit_cast<Digest>(kBytes);
}();

// What the two versions before the digest answer.
constexpr std::uint64_t kFixedLow = 0x3341181C03CB675C;
constexpr std::uint64_t kFixedLowNext = 0x1841181C03CB675C;
constexpr std::uint64_t kFixedHigh = 0x8ED383AA1F4CD1E8;
constexpr std::uint32_t kVersionStep = 10; // the last decimal digit of the version says which answer

void append(std::vector<std::byte> &out, const auto &value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    out.insert(out.end(), bytes.begin(), bytes.end());
}

std::uint8_t permuted(std::byte value) { return kPi[std::to_integer<std::size_t>(value)]; }

} // namespace

Digest md2(std::span<const std::byte> message) {
    // Padded to whole blocks, each padding byte its length; then a checksum block.
    std::vector<std::byte> text(message.begin(), message.end());
    const auto pad = kBlock - (text.size() % kBlock);
    text.insert(text.end(), pad, std::byte(pad));
    std::array<std::byte, kBlock> checksum{};
    std::byte last{0};
    for (std::size_t block = 0; block < text.size(); block += kBlock)
        for (std::size_t at = 0; at < kBlock; ++at)
            last = checksum[at] ^= std::byte(permuted(text[block + at] ^ last));
    text.insert(text.end(), checksum.begin(), checksum.end());

    std::array<std::byte, 3 * kBlock> state{};
    for (std::size_t block = 0; block < text.size(); block += kBlock) {
        for (std::size_t at = 0; at < kBlock; ++at) {
            state[kBlock + at] = text[block + at];
            state[(2 * kBlock) + at] = state[kBlock + at] ^ state[at];
        }
        unsigned carry = 0;
        for (unsigned round = 0; round < kRounds; ++round) {
            for (auto &value : state)
                carry = std::to_integer<unsigned>(value ^= std::byte(kPi[carry]));
            carry = (carry + round) % kPi.size();
        }
    }
    Digest out;
    std::copy_n(state.begin(), out.size(), out.begin());
    return out;
}

Digest hmac_md2(const Digest &key, std::span<const std::byte> message) {
    constexpr std::byte kInner{0x36};
    constexpr std::byte kOuter{0x5C};
    std::vector<std::byte> inner;
    std::vector<std::byte> outer;
    for (const auto value : key) {
        inner.push_back(value ^ kInner);
        outer.push_back(value ^ kOuter);
    }
    inner.insert(inner.end(), message.begin(), message.end());
    const auto digest = md2(inner);
    outer.insert(outer.end(), digest.begin(), digest.end());
    return md2(outer);
}

std::array<std::uint64_t, 2> integrity_answer(const IntegrityQuestion &question) {
    switch (question.version % kVersionStep) {
    case 0:
        return {kFixedLow, kFixedHigh};
    case 1:
        return {kFixedLowNext, kFixedHigh};
    default:
        break;
    }
    std::vector<std::byte> message;
    append(message, question.driver_version);
    append(message, question.version);
    append(message, question.process);
    append(message, question.thread);
    append(message, question.cudart_table);
    append(message, question.integrity_table);
    append(message, question.integrity_function);
    append(message, question.unix_seconds);
    for (const auto &device : question.devices) {
        append(message, device.uuid);
        append(message, device.pci_domain);
        append(message, device.pci_bus);
        append(message, device.pci_device);
    }
    return std::bit_cast<std::array<std::uint64_t, 2>>(hmac_md2(kKey, message));
}

} // namespace singularity::libcuda
