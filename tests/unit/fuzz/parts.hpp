// SPDX-License-Identifier: GPL-2.0-or-later
// What an input of a fuzzer is made of. On disk: parts one after the other, each {u16 size, u8 slot, u8
// piece, u8 context, u8 flags, message}. What the four numbers mean, each subject says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::test {

using Bytes = std::vector<std::uint8_t>;

inline constexpr std::uint8_t kNothing = 0xff; // no slot, no piece

struct Part {
    std::uint8_t slot = kNothing;
    std::uint8_t piece = kNothing;
    std::uint8_t context = 0;
    std::uint8_t flags = 0;
    Bytes message;
};

[[nodiscard]] std::vector<Part> parts_of(std::span<const std::uint8_t> input);
[[nodiscard]] Bytes bytes_of(std::span<const Part> parts);

} // namespace singularity::test
