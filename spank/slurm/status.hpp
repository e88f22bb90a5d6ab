// SPDX-License-Identifier: GPL-2.0-or-later
// Elastic jobs as a table, or one of them in full.
#pragma once

#include "common/slurm/controller.hpp"

#include <ctime>
#include <span>
#include <string>

namespace singularity::slurm {

// A line for each job whose note says that it is elastic, under a heading. "" if there is none.
[[nodiscard]] std::string table(std::span<const Job> jobs, std::time_t now);

// Several lines, KEY: VALUE.
[[nodiscard]] std::string in_full(const Job &job, std::time_t now);

} // namespace singularity::slurm
