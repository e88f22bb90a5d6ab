// SPDX-License-Identifier: GPL-2.0-or-later
// Records as slurmctld would have them, made from the table: what readers and verifier are tested on.
#pragma once

#include "controller.hpp"
#include "slurm_records.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <slurm/slurm.h>

namespace singularity::test {

// A block as slurm's xmalloc() makes it, holding one record. Pointers to texts and records must outlive it.
class Record {
  public:
    explicit Record(const records::StructLayout &layout)
        : block_(sizeof(records::BlockHeader) + layout.size) {
        set_block_size(layout.size);
        if (layout.magic_offset != records::kNowhere)
            store(layout.magic_offset, layout.magic);
    }

    template <class T>
    Record &set(const records::FieldLayout &field, T value) {
        store(field.offset, value);
        return *this;
    }
    Record &set_block_size(std::size_t size) {
        const records::BlockHeader header{.magic = records::BlockHeader::kMagic, .size = size};
        std::memcpy(block_.data(), &header, sizeof(header));
        return *this;
    }
    Record &set_block_magic(std::size_t magic) {
        std::memcpy(block_.data(), &magic, sizeof(magic));
        return *this;
    }
    template <class T>
    void store(std::size_t offset, T value) {
        std::memcpy(block_.data() + sizeof(records::BlockHeader) + offset, static_cast<const void *>(&value),
                    sizeof(value));
    }

    [[nodiscard]] const void *address() const { return block_.data() + sizeof(records::BlockHeader); }

  private:
    std::vector<std::byte> block_;
};

// One job with everything that belongs to it, and what slurmctld shows of it.
struct SyntheticJob {
    Record qos{records::kQosLayout};
    Record partition{records::kPartitionLayout};
    Record details{records::kJobDetailsLayout};
    Record job{records::kJobLayout};
    job_info_t shown{};

    // The API's structs hold plain char *.
    static char *text(const char *literal) { return const_cast<char *>(literal); }

    explicit SyntheticJob(std::uint32_t id) {
        using namespace records;
        qos.set(kQos_id, std::uint32_t{5}).set(kQos_name, "standard");
        partition.set(kPartition_name, "gpu").set(kPartition_priority_tier, std::uint16_t{3});
        partition.set(kPartition_priority_job_factor, std::uint16_t{7})
            .set(kPartition_max_time, std::uint32_t{600});
        details.set(kJobDetails_submit_time, std::int64_t{1000})
            .set(kJobDetails_begin_time, std::int64_t{1001});
        details.set(kJobDetails_min_cpus, std::uint32_t{8}).set(kJobDetails_requeue, std::uint16_t{1});
        job.set(kJob_job_id, id).set(kJob_job_state, std::uint32_t{JOB_RUNNING}).set(kJob_user_id, 1001U);
        job.set(kJob_priority, 4294U).set(kJob_name, "train").set(kJob_account, "research");
        job.set(kJob_partition, "gpu,spare")
            .set(kJob_state_reason, 0U)
            .set(kJob_restart_cnt, std::uint16_t{2});
        job.set(kJob_batch_flag, std::uint16_t{1}).set(kJob_array_job_id, 0U).set(kJob_array_task_id, NO_VAL);
        job.set(kJob_het_job_id, 0U).set(kJob_time_limit, 60U).set(kJob_start_time, std::int64_t{2000});
        job.set(kJob_end_time, std::int64_t{5600}).set(kJob_preempt_time, std::int64_t{0});
        job.set(kJob_total_cpus, 16U)
            .set(kJob_nodes, "n[1-2]")
            .set(kJob_tres_fmt_req_str, "cpu=8,gres/gpu=4");
        job.set(kJob_tres_fmt_alloc_str, "cpu=16,gres/gpu=4").set(kJob_qos_id, 5U);
        job.set(kJob_qos_ptr, qos.address()).set(kJob_details, details.address());
        job.set(kJob_part_ptr, partition.address());

        shown.job_id = id;
        shown.job_state = JOB_RUNNING;
        shown.user_id = 1001;
        shown.priority = 4294;
        shown.name = text("train");
        shown.account = text("research");
        shown.partition = text("gpu");
        shown.restart_cnt = 2;
        shown.batch_flag = 1;
        shown.array_task_id = NO_VAL;
        shown.time_limit = 60;
        shown.start_time = 2000;
        shown.end_time = 5600;
        shown.num_cpus = 16;
        shown.nodes = text("n[1-2]");
        shown.tres_req_str = text("cpu=8,gres/gpu=4");
        shown.tres_alloc_str = text("cpu=16,gres/gpu=4");
        shown.qos = text("standard");
        shown.submit_time = 1000;
        shown.eligible_time = 1001;
        shown.requeue = 1;
    }
    SyntheticJob(const SyntheticJob &) = delete;
    SyntheticJob &operator=(const SyntheticJob &) = delete;

    // Back in the queue: what is shown changes with it.
    void make_pending() {
        job.set(records::kJob_job_state, std::uint32_t{JOB_PENDING});
        shown.job_state = JOB_PENDING;
        shown.partition = text("gpu,spare");
        shown.num_cpus = 8;
        shown.start_time = 987654;
        shown.end_time = 987655;
        shown.qos = text("standard,premium");
    }
};

struct SyntheticNode {
    Record node{records::kNodeLayout};
    node_info_t shown{};

    SyntheticNode() {
        using namespace records;
        node.set(kNode_name, "n1").set(kNode_node_hostname, "host1").set(kNode_node_state, 2U);
        node.set(kNode_cpus_efctv, std::uint16_t{64})
            .set(kNode_owner, NO_VAL)
            .set(kNode_boot_time, std::int64_t{11});
        node.set(kNode_slurmd_start_time, std::int64_t{12}).set(kNode_tres_fmt_str, "cpu=64,gres/gpu=8");
        shown.name = SyntheticJob::text("n1");
        shown.node_hostname = SyntheticJob::text("host1");
        shown.node_state = 2;
        shown.cpus_efctv = 64;
        shown.owner = NO_VAL;
        shown.boot_time = 11;
        shown.slurmd_start_time = 12;
        shown.tres_fmt_str = SyntheticJob::text("cpu=64,gres/gpu=8");
    }
    SyntheticNode(const SyntheticNode &) = delete;
    SyntheticNode &operator=(const SyntheticNode &) = delete;
};

// Two jobs, one node and one partition; the test changes what it likes between the verifier's reads.
class FakeController final : public Controller {
  public:
    SyntheticJob first{71};
    SyntheticJob second{72};
    SyntheticNode node;
    partition_info_t partition{};
    std::vector<const void *> jobs{first.job.address(), second.job.address()};
    std::vector<const void *> nodes{node.node.address()};
    std::map<std::uint32_t, job_info_t *> shown_jobs{{71, &first.shown}, {72, &second.shown}};
    bool reachable = true;
    std::vector<std::uint32_t> asked_for;
    // Runs while slurmctld is being asked, that is between the two reads.
    std::function<void()> meanwhile = [] {};

    FakeController() {
        partition.name = SyntheticJob::text("gpu");
        partition.priority_tier = 3;
        partition.priority_job_factor = 7;
        partition.max_time = 600;
    }

    void visit_records(const Visitor &visitor) override { visitor(jobs, nodes); }

    Expected<std::shared_ptr<const job_info_t>> show_job(std::uint32_t job_id) override {
        asked_for.push_back(job_id);
        if (!reachable)
            return failure("ask slurmctld for job", std::to_string(job_id), "connection refused");
        const auto found = shown_jobs.find(job_id);
        return found == shown_jobs.end() ? nullptr : std::make_shared<const job_info_t>(*found->second);
    }
    Expected<std::shared_ptr<const node_info_t>> show_node(const std::string &name) override {
        return name == "n1" ? std::make_shared<const node_info_t>(node.shown) : nullptr;
    }
    Expected<std::shared_ptr<const partition_info_msg_t>> show_partitions() override {
        auto message = std::make_shared<partition_info_msg_t>();
        message->record_count = 1;
        message->partition_array = &partition;
        meanwhile();
        return message;
    }
};

} // namespace singularity::test
