// SPDX-License-Identifier: GPL-2.0-or-later
// Results as text: a table for people, JSON for programs. The same results give the same bytes.
#pragma once

#include "description.hpp"
#include "statistics.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace singularity::simulator {

// What was simulated, for whoever reads the results later.
struct Origin {
    std::string trace; // the file's name without its folder
    std::string scale; // "1x1"
    std::uint64_t jobs = 0;
    std::uint64_t seed = 0;
    Description description;
};

[[nodiscard]] std::string table_of(const Origin &origin, std::span<const Statistics> results);
[[nodiscard]] std::string json_of(const Origin &origin, std::span<const Statistics> results);

} // namespace singularity::simulator
