// SPDX-License-Identifier: GPL-2.0-or-later
#include "parts.hpp"

#include <algorithm>
#include <cstring>

namespace singularity::test {

namespace {

struct Head {
    std::uint16_t size;
    std::uint8_t slot;
    std::uint8_t piece;
    std::uint8_t context;
    std::uint8_t flags;
};
static_assert(sizeof(Head) == 6);

} // namespace

std::vector<Part> parts_of(std::span<const std::uint8_t> input) {
    std::vector<Part> parts;
    while (input.size() > sizeof(Head)) {
        Head head{};
        std::memcpy(&head, input.data(), sizeof(head));
        input = input.subspan(sizeof(head));
        const auto message = input.first(std::min<std::size_t>(head.size, input.size()));
        input = input.subspan(message.size());
        parts.push_back({.slot = head.slot,
                         .piece = head.piece,
                         .context = head.context,
                         .flags = head.flags,
                         .message = Bytes(message.begin(), message.end())});
    }
    return parts;
}

Bytes bytes_of(std::span<const Part> parts) {
    Bytes out;
    for (const auto &part : parts) {
        const Head head{.size = static_cast<std::uint16_t>(part.message.size()),
                        .slot = part.slot,
                        .piece = part.piece,
                        .context = part.context,
                        .flags = part.flags};
        const auto at = out.size();
        out.resize(at + sizeof(head));
        std::memcpy(out.data() + at, &head, sizeof(head));
        out.insert(out.end(), part.message.begin(), part.message.end());
    }
    return out;
}

} // namespace singularity::test
