// SPDX-License-Identifier: GPL-2.0-or-later
// job_submit/singularity in slurmctld. No function throws; each returns SLURM_SUCCESS or an error of
// slurm_errno.h.
#pragma once

#include <slurm/slurm.h>

namespace singularity::submission {

int init() noexcept;

// words: where slurmctld wants what the user is to read, in its own memory; may hold another plugin's. An
// error of our own lets the job pass as it is: whoever submits another kind of job must not suffer from it.
int submit(job_desc_msg_t *description, char **words) noexcept;

} // namespace singularity::submission
