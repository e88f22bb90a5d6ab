// SPDX-License-Identifier: GPL-2.0-or-later
// When slurmctld shows a job's own value. In other states pack_job() (slurmctld/job_mgr.c) shows an estimate
// or another record's value, so there is nothing to compare. fields.json names these functions.
#pragma once

#include <cstdint>

#include <slurm/slurm.h>

namespace singularity::records::conditions {

[[nodiscard]] constexpr std::uint32_t base_state(std::uint32_t job_state) {
    return job_state & JOB_STATE_BASE;
}

template <class Job>
[[nodiscard]] bool pending(const Job &job) {
    return base_state(job.job_state) == JOB_PENDING;
}

template <class Job>
[[nodiscard]] bool not_completing(const Job &job) {
    return (job.job_state & JOB_COMPLETING) == 0;
}

// A pending job's times are estimates.
template <class Job>
[[nodiscard]] bool started(const Job &job) {
    return base_state(job.job_state) > JOB_PENDING;
}

// A job without a limit is shown with that of its partition.
template <class Job>
[[nodiscard]] bool has_time_limit(const Job &job) {
    return job.time_limit != NO_VAL;
}

// While a job waits, its request is shown; while it completes, what is left of its allocation.
template <class Job>
[[nodiscard]] bool has_allocated_cpus(const Job &job) {
    return started(job) && not_completing(job) && job.total_cpus != 0;
}

} // namespace singularity::records::conditions
