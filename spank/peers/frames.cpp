// SPDX-License-Identifier: GPL-2.0-or-later
#include "frames.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

namespace singularity::peers {

namespace {

constexpr std::size_t kLength = 4;

} // namespace

std::size_t FrameReader::room() const {
    const std::size_t most = kLength + limit_;
    return most - std::min(most, held_.size());
}

Expected<std::optional<std::string>> FrameReader::next() {
    if (held_.size() < kLength)
        return std::nullopt;
    std::uint32_t length = 0;
    for (std::size_t at = 0; at < kLength; ++at)
        length = length << 8 | static_cast<std::uint8_t>(held_[at]);
    if (length == 0 || length > limit_)
        return failure("read", "a message",
                       fmt::format("it says that it has {} bytes; expected 1 to {}", length, limit_),
                       EMSGSIZE);
    if (held_.size() < kLength + length)
        return std::nullopt;
    std::string out = held_.substr(kLength, length);
    held_.erase(0, kLength + length);
    return std::optional(std::move(out));
}

std::string framed(std::string_view bytes) {
    std::string out;
    out.reserve(kLength + bytes.size());
    for (std::size_t at = 0; at < kLength; ++at)
        out += static_cast<char>(bytes.size() >> (8 * (kLength - 1 - at)) & 0xff);
    return out.append(bytes);
}

} // namespace singularity::peers
