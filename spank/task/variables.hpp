// SPDX-License-Identifier: GPL-2.0-or-later
// What the SPANK plugin puts into a task's environment for singularity-task, which takes it out again.
#pragma once

namespace singularity::task {

// The step's hosts, with commas between them.
inline constexpr const char *kHostsVariable = "SINGULARITY_STEP_HOSTS";
// Which of its job's hosts, from 1 on, each of them is, with commas between them; not set: it is not known.
inline constexpr const char *kPlacesVariable = "SINGULARITY_STEP_PLACES";
// How many hosts its job has.
inline constexpr const char *kJobHostsVariable = "SINGULARITY_JOB_HOSTS";
// Seconds between checkpoints that nobody asks for; 0, or not set: none.
inline constexpr const char *kEveryVariable = "SINGULARITY_STEP_EVERY";
// The store in which it is saved; empty, or not set: the site's.
inline constexpr const char *kStoreVariable = "SINGULARITY_STEP_STORE";
// As --singularity-image and its companions have them; not set: they were not given.
inline constexpr const char *kImageVariable = "SINGULARITY_STEP_IMAGE";
inline constexpr const char *kMountsVariable = "SINGULARITY_STEP_MOUNTS";
inline constexpr const char *kWorkdirVariable = "SINGULARITY_STEP_WORKDIR";
inline constexpr const char *kRootVariable = "SINGULARITY_STEP_ROOT";
// As --singularity-publish has it; not set: it was not given.
inline constexpr const char *kPublishVariable = "SINGULARITY_STEP_PUBLISH";
// A batch script has begun the step, and what becomes of that script when its job runs again. It comes by way
// of srun, which takes away what is not SLURM_* where --export=NONE says so.
inline constexpr const char *kOfScriptVariable = "SLURM_SINGULARITY_OF_SCRIPT";
// Of a step that goes on when its script, which is saved, is restored: the number of the srun's stand-in
// (../commands), and, with blanks between them, the checkpoint from which the step goes on now, and how many
// bytes of what comes as its input each rank has had. It comes by srun as well.
inline constexpr const char *kGoesOnVariable = "SLURM_SINGULARITY_GOES_ON";
// It is no task of a step, but the batch script; and again what becomes of it.
inline constexpr const char *kScriptVariable = "SINGULARITY_SCRIPT";
inline constexpr const char *kScriptAgain = "again"; // it runs from its first line
inline constexpr const char *kSavedScript = "saved"; // it goes on where it was saved
// The same, as long as it has begun no srun; from then on it runs again.
inline constexpr const char *kUntilSrun = "until-srun";
// Where Slurm cannot put the wrapper in front of the program (before 23.11), it stands in place of the
// program's name, which is here.
inline constexpr const char *kProgramVariable = "SINGULARITY_STEP_PROGRAM";

} // namespace singularity::task
