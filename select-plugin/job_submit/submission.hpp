// SPDX-License-Identifier: GPL-2.0-or-later
// What a job needs to be elastic, decided from the description with which it is submitted. Called by
// slurmctld under its locks, for every job of the cluster, with what any user may have written: no I/O, no
// lock, no size is believed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <slurm/slurm.h>

namespace singularity::submission {

// What the SPANK plugin's options say.
struct Elastic {
    std::optional<std::uint32_t> min_gpus; // absent: --singularity-elastic without a value
    std::optional<std::uint32_t> max_gpus;
};

// Nothing for a job that is not elastic, or is switched off. A value that the SPANK plugin would have refused
// counts as none: the node refuses it.
[[nodiscard]] std::optional<Elastic> elastic_of(const job_desc_msg_t &description);

struct Answer {
    bool accepted = true;
    std::string words; // for the user, a line for each thing; empty: nothing to say
    // For the AdminComment, if that is empty (common/slurm/note.hpp): what the planner may do with the job
    // before it has run. Empty: nobody knows that yet.
    std::string note;
    bool has_script = false; // elastic, and can be requeued: an identity tells its runs from other jobs'
    bool new_output = false; // Slurm appends to its output file, which is to begin anew in the first run
};

// Looks at the description of an elastic job and completes it: numbers only, no string of it is touched.
// Others are as they were.
[[nodiscard]] Answer examine(job_desc_msg_t &description);

} // namespace singularity::submission
