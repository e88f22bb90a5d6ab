// SPDX-License-Identifier: GPL-2.0-or-later
// The output file of a batch script. The job_submit plugin has slurmstepd append to it, so that output goes
// on after a requeue. In the job's first run the file begins anew all the same, as it does without us.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <string>

namespace singularity::task {

// Empties the file if this job has not begun it before, and says whether it has done so. `job` says which job
// that is; it becomes the file's extended attribute user.singularity.job, where the file system has those:
// slurmctld may forget that the job has run before. Nothing else than a regular file that is open for
// appending is changed.
[[nodiscard]] Expected<bool> begin_output(int fd, const std::string &job);

// A moment of the job's script: in which run of the job (SLURM_RESTART_COUNT), and whether that ends with it.
struct Moment {
    std::string checkpoint;
    std::uint32_t run = 0;
    bool ends = false;
};

// All that the script had written by then is in the file, and nothing else yet: the file's size becomes a
// part of its extended attribute user.singularity.checkpoints. Only of a file that this job has begun.
[[nodiscard]] Expected<void> note_output(int fd, const std::string &job, const Moment &moment);

// The script goes on from that checkpoint, in this run, and writes again what it wrote after it, which is cut
// off. Lines of slurmstepd's and our own stay. Nothing happens where the file does not say how large it was,
// and in the run that follows on one that ended with the checkpoint: nothing comes again then.
[[nodiscard]] Expected<void> cut_output(int fd, const std::string &job, const Moment &moment);

} // namespace singularity::task
