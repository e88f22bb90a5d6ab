// SPDX-License-Identifier: GPL-2.0-or-later
// What tells a job from any other that Slurm gives the same number to, earlier or later. The job_submit
// plugin writes it into the batch script's environment, where it stays however often the job is requeued, and
// whatever slurmctld has forgotten of that. Its user can change it, and with that choose among checkpoints of
// his own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace singularity {

// Not taken away by --export=NONE, as what begins so belongs to Slurm.
inline constexpr const char *kIdentityVariable = "SLURM_SINGULARITY_JOB";
// Set to "new" in a batch script whose output file is to begin anew in its first run, although slurmstepd
// appends.
inline constexpr const char *kOutputVariable = "SLURM_SINGULARITY_OUTPUT";
inline constexpr const char *kNewOutput = "new";
inline constexpr const char *kKeptOutput = "kept";
inline constexpr std::size_t kIdentityBytes = 16; // random ones, in hexadecimal digits

[[nodiscard]] inline bool is_identity(std::string_view text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    return text.size() == 2 * kIdentityBytes &&
           std::ranges::all_of(text, [&](char digit) { return kDigits.contains(digit); });
}

} // namespace singularity
