// SPDX-License-Identifier: GPL-2.0-or-later
// The output file of a batch script. The job_submit plugin has slurmstepd append to it, so that output goes
// on after a requeue. In the job's first run the file begins anew all the same, as it does without us.
#pragma once

#include "common/error.hpp"

#include <string>

namespace singularity::task {

// Empties the file if this job has not begun it before, and says whether it has done so. `job` says which job
// that is; it becomes the file's extended attribute user.singularity.job, where the file system has those:
// slurmctld may forget that the job has run before. Nothing else than a regular file that is open for
// appending is changed.
[[nodiscard]] Expected<bool> begin_output(int fd, const std::string &job);

} // namespace singularity::task
