// SPDX-License-Identifier: GPL-2.0-or-later
// Short questions to other programs.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"

#include <string>
#include <vector>

namespace singularity {

struct ProgramOutput {
    int status = 0; // as waitpid(2) gives it
    std::string out;
    std::string err;
};

// Runs a program, found as execvp(3) finds it, with its input empty until it ends or the deadline comes, at
// which it is killed. ENOENT: there is no such program; ETIMEDOUT. What it writes beyond some MiB is an
// error.
[[nodiscard]] Expected<ProgramOutput> output_of(std::vector<std::string> command, const Deadline &deadline);

// The same, and any end but exit 0 is an error with the program's own words. What it wrote to its output.
[[nodiscard]] Expected<std::string> answer_of(std::vector<std::string> command, const Deadline &deadline);

} // namespace singularity
