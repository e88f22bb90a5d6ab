// SPDX-License-Identifier: GPL-2.0-or-later
// What keeps a step from being saved, as the code of an error.
#pragma once

#include <cerrno>

namespace singularity::agent {

struct SaveError {
    // After each of these there is no other attempt: a rank has failed, so that the job ends; what a program
    // holds cannot be saved, as long as it holds it; a program waits for one of Slurm's commands.
    static constexpr int kRankHasFailed = ESHUTDOWN;
    static constexpr int kUnsavable = EOPNOTSUPP;
    static constexpr int kWaits = EINPROGRESS;
    // The same where that is a step of the program's, and the two can be saved only when both end.
    static constexpr int kStepRuns = ETXTBSY;
    [[nodiscard]] static bool is_unsavable(int code) { return code == kUnsavable || code == kWaits; }
};

} // namespace singularity::agent
