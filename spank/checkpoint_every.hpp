// SPDX-License-Identifier: GPL-2.0-or-later
// What --singularity-checkpoint-every says: how often a job is saved while it runs on.
#pragma once

#include "common/error.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace singularity::spank {

// text: a time as sbatch's --time takes it (minutes, minutes:seconds, hours:minutes:seconds, days-hours and
// so on), or "off". Zero: never. What is not zero is least (elastic.checkpoint_every_least) or more, and at
// most a year. The error's reason names the value and the fix, in the user's words.
[[nodiscard]] Expected<std::chrono::seconds> parse_checkpoint_every(std::string_view text,
                                                                    std::chrono::milliseconds least);

// "30" (minutes) or "0:10", as the option takes it.
[[nodiscard]] std::string to_slurm_time(std::chrono::seconds time);

} // namespace singularity::spank
