// SPDX-License-Identifier: GPL-2.0-or-later
// The two sides that the verifier compares: slurmctld's own records, and what it answers to anybody who asks.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <slurm/slurm.h>

namespace singularity {

class Controller {
  public:
    virtual ~Controller() = default;

    // Calls back once with slurmctld's read locks held. The records may be gone when the call returns, and
    // another record may be where one was.
    using Visitor =
        std::function<void(std::span<const void *const> jobs, std::span<const void *const> nodes)>;
    virtual void visit_records(const Visitor &visitor) = 0;

    // What the public API says. Null: the controller does not know such a job or node. An error: it could not
    // be asked.
    [[nodiscard]] virtual Expected<std::shared_ptr<const job_info_t>> show_job(std::uint32_t job_id) = 0;
    [[nodiscard]] virtual Expected<std::shared_ptr<const node_info_t>> show_node(const std::string &name) = 0;
    [[nodiscard]] virtual Expected<std::shared_ptr<const partition_info_msg_t>> show_partitions() = 0;
};

} // namespace singularity
