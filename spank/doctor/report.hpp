// SPDX-License-Identifier: GPL-2.0-or-later
// A diagnosis in words, for people and for programs.
#pragma once

#include "checks.hpp"

#include <string>

namespace singularity::doctor {

// A paragraph per finding, a line per reason for which parts were not looked at; of a good host one line.
[[nodiscard]] std::string in_words(const Diagnosis &diagnosis);

// One line: {"status": 0, "findings": [{"check", "severity", "what", "why", "fix"}], "not_looked_at":
// [{"part", "reason", "words"}]}.
[[nodiscard]] std::string in_json(const Diagnosis &diagnosis);

// 0: nothing was found; 1: something was; 2: a part could not be looked at, whatever was found in others.
[[nodiscard]] int exit_status(const Diagnosis &diagnosis);

} // namespace singularity::doctor
