// SPDX-License-Identifier: GPL-2.0-or-later
// What is fuzzed: each program of main.cpp or libfuzzer.cpp is linked with a subject that says these: one of
// ../proxy-daemon/fuzz_*.cpp, or table.cpp with one of the tables here.
#pragma once

#include "parts.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace singularity::test {

// One input, from its begin to its end.
void run_input(std::span<const std::uint8_t> input);

[[nodiscard]] const std::vector<std::vector<Part>> &good_inputs();
// A good one, or some, changed; the same for the same seed.
[[nodiscard]] std::vector<Part> made_input(std::uint64_t seed);
// So many small changes that keep most of it well-formed.
void change(std::vector<Part> &parts, std::uint64_t seed, unsigned changes);

// What has been reached since the program began, and what has not: "reached: 44 of 44 messages, ...".
[[nodiscard]] std::string reached_text();

} // namespace singularity::test
