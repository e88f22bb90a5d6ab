// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs of Slurm's that have lost a host, or an agent that was needed, and are to be run again, from their
// last checkpoint. Slurm itself may not notice that anything is lost, or later than a batch script would go
// on from its failed step. slurmctld is asked until it has said what becomes of the job.
#pragma once

#include "agent/slurm/slurm_job.hpp"
#include "common/deadline.hpp"
#include "steps.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/types.h>

namespace singularity::agent {

class Reruns {
  public:
    explicit Reruns(const Libraries &libraries) : libraries_(&libraries) {}

    // What is known already is not added again.
    void add(Rerun rerun);
    // Why no more jobs of the user's are looked after, where users ask for it (Budget::questions).
    [[nodiscard]] std::optional<std::string> no_room(uid_t uid) const;
    void watch(std::vector<pollfd> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    // Steps whose jobs are not run again: who waits for them may be told.
    [[nodiscard]] std::vector<StepKey> handle();

  private:
    struct Lost {
        Rerun rerun;
        std::uint32_t job = 0;
        Deadline until;
        std::optional<Deadline> ask;
        Turn turn; // to ask
        std::optional<SlurmRequest> request;
        bool requeues = false; // the request is one to requeue the job
        [[nodiscard]] OwnedJob owned() const { return {.id = job, .uid = rerun.key.uid}; }
    };
    enum class Outcome : std::uint8_t { open, run_again, stays_lost };
    [[nodiscard]] Outcome look_at(Lost &lost);
    [[nodiscard]] Outcome has_told(Lost &lost, const SlurmJob &about);
    static void send(Lost &lost, Expected<SlurmRequest> request);

    const Libraries *libraries_;
    std::vector<Lost> lost_;
};

} // namespace singularity::agent
