// SPDX-License-Identifier: GPL-2.0-or-later
// The SPANK plugin's implementation. Slurm loads it into srun, sbatch and salloc (as the user), slurmd and
// slurmstepd (as root); facts on which hook runs where: spank(7). No function throws; each returns
// ESPANK_SUCCESS or, which is what Slurm takes for a failure, -1.
#pragma once

#include "slurm_spank.hpp"

namespace singularity::spank {

// Registers the options, in every context: the option table symbol does not work for sbatch and salloc.
int init(spank_t spank, int argc, char **argv) noexcept;

// Where a job is submitted: refuses what the options come to. On a node: says in slurmd's log what the step
// asks for, and gives slurmstepd's thread that starts tasks the job's local directories.
int init_post_opt(spank_t spank) noexcept;

// In srun, when it has begun a step and no task of it runs: tells a batch script that is saved of the step.
int local_user_init(spank_t spank) noexcept;

// In each task, before exec, as the user: fails if the node refuses what the options come to.
// SINGULARITY_ELASTIC tells the program its range; tasks of srun's
// steps are run by singularity-task.
int task_init(spank_t spank) noexcept;

} // namespace singularity::spank
