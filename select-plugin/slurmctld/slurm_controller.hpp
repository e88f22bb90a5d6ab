// SPDX-License-Identifier: GPL-2.0-or-later
// The real controller: this process, and itself through its own port.
#pragma once

#include "controller.hpp"
#include "host.hpp"

namespace singularity {

class SlurmController final : public Controller {
  public:
    [[nodiscard]] static Expected<std::unique_ptr<Controller>> make(const host::Slurmctld &slurmctld);

    void visit_records(const Visitor &visitor) override;
    [[nodiscard]] Expected<std::shared_ptr<const job_info_t>> show_job(std::uint32_t job_id) override;
    [[nodiscard]] Expected<std::shared_ptr<const node_info_t>> show_node(const std::string &name) override;
    [[nodiscard]] Expected<std::shared_ptr<const partition_info_msg_t>> show_partitions() override;

  private:
    // The types are those that the installed slurm.h declares.
    struct Api {
        decltype(&::slurm_load_job) load_job = nullptr;
        decltype(&::slurm_free_job_info_msg) free_jobs = nullptr;
        decltype(&::slurm_load_node_single) load_node = nullptr;
        decltype(&::slurm_free_node_info_msg) free_nodes = nullptr;
        decltype(&::slurm_load_partitions) load_partitions = nullptr;
        decltype(&::slurm_free_partition_info_msg) free_partitions = nullptr;
        const char *(*error_text)(int code) = nullptr;
    };

    SlurmController(const host::Slurmctld &slurmctld, const Api &api) : slurmctld_(slurmctld), api_(api) {}
    [[nodiscard]] std::unexpected<Error> failed(const char *doing, std::string on, int code) const;

    host::Slurmctld slurmctld_;
    Api api_;
};

} // namespace singularity
