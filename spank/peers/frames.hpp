// SPDX-License-Identifier: GPL-2.0-or-later
// A stream of bytes cut into frames: four bytes of length, the highest first, then so many bytes.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace singularity::peers {

// An Envelope. The largest has a program: 6 MiB of arguments and environment are the most that Linux starts
// (../node/packet.hpp), and 2 MiB are for all else.
inline constexpr std::size_t kMessageLimit = std::size_t{8} << 20;
inline constexpr std::size_t kHandshakeLimit = std::size_t{8} << 10;

// Holds no more than one frame of the limit and what came with its end.
class FrameReader {
  public:
    explicit FrameReader(std::size_t limit) : limit_(limit) {}

    void set_limit(std::size_t limit) { limit_ = limit; }
    void add(std::string_view bytes) { held_ += bytes; }
    // So much may be added before next() is asked again.
    [[nodiscard]] std::size_t room() const;
    // The next whole frame, if there is one; an error as soon as a length is above the limit or zero.
    [[nodiscard]] Expected<std::optional<std::string>> next();

  private:
    std::size_t limit_;
    std::string held_;
};

[[nodiscard]] std::string framed(std::string_view bytes);

} // namespace singularity::peers
