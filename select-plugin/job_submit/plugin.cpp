// SPDX-License-Identifier: GPL-2.0-or-later
// The C edge of job_submit/singularity: names, one-line functions, nothing else. See job_submit.hpp for what
// they do.
#include "job_submit.hpp"

#include <cstdint>

#include <slurm/slurm.h>

namespace impl = singularity::submission;

#pragma GCC visibility push(default)
extern "C" {

// Declared first: a const definition alone would have internal linkage in C++.
extern const char plugin_name[];
extern const char plugin_type[];
extern const std::uint32_t plugin_version;

const char plugin_name[] = "Elastic jobs are submitted so that they can be requeued";
const char plugin_type[] = "job_submit/singularity";
const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;

int init() { return impl::init(); }
int fini() { return SLURM_SUCCESS; }

int job_submit(job_desc_msg_t *description, std::uint32_t /*uid*/, char **words) {
    return impl::submit(description, words);
}

// Since 23.11 slurmctld passes one more pointer, for words.
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
int job_modify(job_desc_msg_t * /*description*/, void * /*job*/, std::uint32_t /*uid*/, char ** /*words*/) {
    return SLURM_SUCCESS;
}
#else
int job_modify(job_desc_msg_t * /*description*/, void * /*job*/, std::uint32_t /*uid*/) {
    return SLURM_SUCCESS;
}
#endif
}
#pragma GCC visibility pop
