// SPDX-License-Identifier: GPL-2.0-or-later
// What is wrong with a node, by a table: each check is a pure function from facts to what it has to say. To
// add one: a row in a table of one of the files checks_*.cpp, a case in its unit test.
#pragma once

#include "facts.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::doctor {

inline constexpr const char *kYaml = "singularity.yaml";

// kError: elastic jobs fail, lose work, or are not contained. kWarning: they work, but slower or with less
// room.
enum class Severity : std::uint8_t { kError, kWarning };

// One sentence each, without a capital letter or an end.
struct Problem {
    std::string what; // with the value that was found
    std::string why;  // it matters
    std::string fix;  // what to write where, or to run
};

// Nothing: all is well.
using Verdict = std::optional<Problem>;

struct Check {
    std::string_view name;
    Severity severity;
    // Nothing where all is well, and where the facts that it needs have not been seen.
    std::optional<Problem> (*judge)(const Facts &facts);
};

// A check of some parts of the facts: Judge gets them as they were seen.
template <auto Judge, auto... Parts>
[[nodiscard]] constexpr Check check(std::string_view name, Severity severity) {
    return Check{name, severity, [](const Facts &facts) -> std::optional<Problem> {
                     if ((!(facts.*Parts).has_value() || ...))
                         return std::nullopt;
                     return std::invoke(Judge, *(facts.*Parts)...);
                 }};
}

[[nodiscard]] std::span<const Check> slurm_checks();
[[nodiscard]] std::span<const Check> plugstack_checks();
[[nodiscard]] std::span<const Check> configuration_checks();
[[nodiscard]] std::span<const Check> host_checks();

struct Finding {
    std::string_view check;
    Severity severity;
    Problem problem;
};
struct Unlooked {
    std::string_view part;
    NotSeen reason;
};
struct Diagnosis {
    std::vector<Finding> findings; // errors first
    std::vector<Unlooked> unlooked;
};
[[nodiscard]] Diagnosis diagnose(const Facts &facts);

} // namespace singularity::doctor
