// SPDX-License-Identifier: GPL-2.0-or-later
// What the fuzzer feeds and the program that replays its inputs have in common.
#pragma once

#include <cstdint>
#include <span>

namespace singularity::test {

inline constexpr std::uint64_t kFuzzWindow = 0x3000'0000'0000;
inline constexpr std::uint64_t kFuzzWindowSize = std::uint64_t{1} << 40;

// The handle of an object that is there: index 1 of each kind.
[[nodiscard]] std::uint64_t fuzz_handle(unsigned kind, std::uint64_t index);
// One input: one session from its begin to its end.
void fuzz_records(std::span<const std::uint8_t> input);

} // namespace singularity::test
