// SPDX-License-Identifier: GPL-2.0-or-later
// A client that writes anything: what the fuzzer feeds and the program that replays its inputs have in
// common.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace singularity::test {

// One input: one session from its begin to its end.
void fuzz_records(std::span<const std::uint8_t> input);

// How many of the kinds of records and packets have been taken by a session since the program began, and
// which have not: "reached: 44 of 44 messages, ...".
[[nodiscard]] std::string reached_text();

} // namespace singularity::test
