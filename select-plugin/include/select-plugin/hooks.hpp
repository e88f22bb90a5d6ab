// SPDX-License-Identifier: GPL-2.0-or-later
// What a policy inside slurmctld implements. The plugins call it only while the layout of slurmctld's records
// is trusted; without a policy, or without trust, every operation is forwarded as it came.
//
// Every call comes from a thread of slurmctld that holds slurmctld's locks: it must return at once, take no
// lock that is ever held across I/O, do no I/O itself, and change nothing of slurmctld's. An exception that
// leaves a hook ends all decisions for the life of the process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace singularity::hooks {

// Records of slurmctld, read through the generated functions of slurm_records.hpp with a DirectReader.
struct JobRecord;
struct Bitmap;
struct List;

// The arguments of select_p_job_test() (slurm's interfaces/select.h) that all releases have.
struct JobTest {
    JobRecord *job;
    Bitmap *nodes; // candidates on the way in, the choice on the way out
    std::uint32_t min_nodes;
    std::uint32_t max_nodes;
    std::uint32_t wanted_nodes;
    std::uint16_t mode; // SELECT_MODE_*
    List *preemption_candidates;
    List **preempted;
};

// The jobs that a job_test may preempt: null, slurmctld's own list, or another one that ends with this.
using Candidates = std::unique_ptr<List, void (*)(List *)>;

class Hooks {
  public:
    virtual ~Hooks() = default;

    // Of the candidates of a job_test those that select/cons_tres is told of.
    virtual Candidates candidates(const JobTest &test) {
        return {test.preemption_candidates, [](List *) {}};
    }

    // A value is returned to slurmctld instead of asking select/cons_tres: ESLURM_NODES_BUSY defers the job.
    virtual std::optional<int> before_job_test(const JobTest &) { return std::nullopt; }
    // Sees what select/cons_tres answered and returns what slurmctld shall get.
    virtual int after_job_test(const JobTest &, int answer) { return answer; }

    // After select/cons_tres has allocated or released the job's resources without error.
    virtual void job_began(JobRecord *) {}
    virtual void job_ended(JobRecord *) {}

    // After node_init and reconfigure: what is remembered of nodes is void.
    virtual void nodes_changed() {}

    // Sees the priority that priority/multifactor computed and returns the one that the job gets.
    virtual std::uint32_t priority(JobRecord *, std::uint32_t computed) { return computed; }
};

} // namespace singularity::hooks
