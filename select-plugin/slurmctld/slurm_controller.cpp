// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_controller.hpp"

#include <algorithm>
#include <cerrno>
#include <type_traits>
#include <vector>

#include <fmt/core.h>
#include <slurm/slurm_errno.h>

// Since 26.05 a macro chooses between two functions; the function itself is meant here.
#undef slurm_load_job

namespace singularity {

namespace {

// Without SHOW_MIXED a node's state is shown as recorded; without SHOW_LOCAL a federation would be asked.
constexpr std::uint16_t kShow = SHOW_ALL | SHOW_DETAIL | SHOW_LOCAL | SHOW_FUTURE;

class ReadLocks {
  public:
    explicit ReadLocks(const host::Slurmctld &slurmctld) : slurmctld_(slurmctld) { slurmctld_.lock(kLocks); }
    ~ReadLocks() { slurmctld_.unlock(kLocks); }
    ReadLocks(const ReadLocks &) = delete;
    ReadLocks &operator=(const ReadLocks &) = delete;

  private:
    static constexpr host::Locks kLocks{.conf = host::Locks::kRead,
                                        .job = host::Locks::kRead,
                                        .node = host::Locks::kRead,
                                        .part = host::Locks::kRead};
    const host::Slurmctld &slurmctld_;
};

// Up to 25.11 a job is asked for by its number, since 26.05 by a step id.
template <class Id>
int load_job(int (*load)(job_info_msg_t **, Id, std::uint16_t), job_info_msg_t **message,
             std::uint32_t job_id) {
    if constexpr (std::is_integral_v<Id>) {
        return load(message, job_id, kShow);
    } else {
        Id step_id{};
        step_id.job_id = job_id;
        step_id.step_het_comp = NO_VAL;
        step_id.step_id = NO_VAL;
        return load(message, step_id, kShow);
    }
}

// Some functions of the API return the error itself, some return -1 and set errno.
int error_code(int returned) { return returned > 0 ? returned : errno; }

} // namespace

Expected<std::unique_ptr<Controller>> SlurmController::make(const host::Slurmctld &slurmctld) {
    Api api;
    const bool found = host::find("slurm_load_job", api.load_job) &&
                       host::find("slurm_free_job_info_msg", api.free_jobs) &&
                       host::find("slurm_load_node_single", api.load_node) &&
                       host::find("slurm_free_node_info_msg", api.free_nodes) &&
                       host::find("slurm_load_partitions", api.load_partitions) &&
                       host::find("slurm_free_partition_info_msg", api.free_partitions) &&
                       host::find("slurm_strerror", api.error_text);
    if (!found)
        return failure("find", "Slurm's public API", "slurmctld does not have all of it");
    return std::unique_ptr<Controller>(new SlurmController(slurmctld, api));
}

std::unexpected<Error> SlurmController::failed(const char *doing, std::string on, int code) const {
    return failure(doing, std::move(on), api_.error_text(code), code);
}

void SlurmController::visit_records(const Visitor &visitor) {
    std::vector<const void *> jobs;
    std::vector<const void *> nodes;
    const ReadLocks locks(slurmctld_);
    if (void *const list = *slurmctld_.job_list; list != nullptr) {
        const auto append = [](void *job, void *to) noexcept {
            static_cast<std::vector<const void *> *>(to)->push_back(job);
            return 0;
        };
        slurmctld_.list_for_each(list, append, &jobs);
    }
    if (void **const table = *slurmctld_.node_table; table != nullptr && *slurmctld_.node_count > 0)
        std::copy_if(table, table + *slurmctld_.node_count, std::back_inserter(nodes),
                     [](const void *node) { return node != nullptr; });
    visitor(jobs, nodes);
}

Expected<std::shared_ptr<const job_info_t>> SlurmController::show_job(std::uint32_t job_id) {
    job_info_msg_t *loaded = nullptr;
    if (const int returned = load_job(api_.load_job, &loaded, job_id); returned != 0) {
        const int code = error_code(returned);
        if (code == ESLURM_INVALID_JOB_ID)
            return nullptr;
        return failed("ask slurmctld for job", std::to_string(job_id), code);
    }
    const std::shared_ptr<job_info_msg_t> message(loaded, api_.free_jobs);
    const auto *const end = message->job_array + message->record_count;
    const auto *const job =
        std::find_if(message->job_array, message->job_array + message->record_count,
                     [&](const job_info_t &candidate) { return candidate.job_id == job_id; });
    return job == end ? nullptr : std::shared_ptr<const job_info_t>(message, job);
}

Expected<std::shared_ptr<const node_info_t>> SlurmController::show_node(const std::string &name) {
    node_info_msg_t *loaded = nullptr;
    std::string writable = name; // the API takes char *
    if (const int returned = api_.load_node(&loaded, writable.data(), kShow); returned != 0) {
        const int code = error_code(returned);
        if (code == ESLURM_INVALID_NODE_NAME)
            return nullptr;
        return failed("ask slurmctld for node", name, code);
    }
    const std::shared_ptr<node_info_msg_t> message(loaded, api_.free_nodes);
    const auto *const end = message->node_array + message->record_count;
    const auto *const node = std::find_if(
        message->node_array, message->node_array + message->record_count,
        [&](const node_info_t &candidate) { return candidate.name != nullptr && name == candidate.name; });
    return node == end ? nullptr : std::shared_ptr<const node_info_t>(message, node);
}

Expected<std::shared_ptr<const partition_info_msg_t>> SlurmController::show_partitions() {
    partition_info_msg_t *loaded = nullptr;
    if (const int returned = api_.load_partitions(0, &loaded, kShow); returned != 0)
        return failed("ask slurmctld for", "partitions", error_code(returned));
    return std::shared_ptr<const partition_info_msg_t>(loaded, api_.free_partitions);
}

} // namespace singularity
