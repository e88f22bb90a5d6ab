// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/slurm/controller.hpp"

#include "common/deadline.hpp"
#include "common/program_output.hpp"
#include "common/slurm/gres.hpp"
#include "common/slurm/job_fate.hpp"
#include "common/slurm/memory.hpp"
#include "common/slurm/topology.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <unistd.h>

// Since 26.05 macros choose between two functions each; the functions themselves are meant here.
#undef slurm_load_job
#undef slurm_requeue
#undef slurm_load_jobs
#undef slurm_load_node
#undef slurm_load_node_single
#undef slurm_load_partitions
#undef slurm_update_job

namespace singularity::slurm {

namespace {

constexpr std::chrono::seconds kPatience(30); // with scontrol, which itself waits for MessageTimeout
// Without SHOW_LOCAL a federation would be asked.
constexpr std::uint16_t kShow = SHOW_ALL | SHOW_DETAIL | SHOW_LOCAL;

// What a refusal of slurmctld calls for.
struct Remedy {
    int code;
    std::string_view words;
};
constexpr std::string_view kAnyRemedy = "'scontrol show job' shows what Slurm says of it";
constexpr std::array kRemedies{
    Remedy{ESLURM_DISABLED, "submit it with --requeue, or set JobRequeue=1 in slurm.conf"},
    Remedy{ESLURM_BATCH_ONLY, "only jobs of sbatch can be requeued: submit it with sbatch"},
    Remedy{ESLURM_ALREADY_DONE, "submit it again"},
    Remedy{ESLURM_ACCESS_DENIED, "only its user and operators may"},
    Remedy{ESLURM_USER_ID_MISSING, "only its user and operators may"},
};

std::string with_remedy(std::string_view why, int code) {
    const auto *const remedy =
        std::ranges::find_if(kRemedies, [&](const Remedy &candidate) { return candidate.code == code; });
    return fmt::format("{}; {}", why, remedy == kRemedies.end() ? kAnyRemedy : remedy->words);
}

// Up to 25.11 a job is named by its number, since 26.05 by a step id. The function's address is taken by the
// caller.
template <class Id>
Id job_name(std::uint32_t id) {
    if constexpr (std::is_integral_v<Id>) {
        return id;
    } else {
        Id name{};
        name.job_id = id;
        name.step_het_comp = NO_VAL;
        name.step_id = NO_VAL;
        return name;
    }
}

template <class Id>
int load(int (*function)(job_info_msg_t **, Id, std::uint16_t), job_info_msg_t **message, std::uint32_t id) {
    return function(message, job_name<Id>(id), kShow);
}

template <class Id>
int requeue(int (*function)(Id, std::uint32_t), std::uint32_t id, std::uint32_t flags) {
    return function(job_name<Id>(id), flags);
}

template <class Description>
void set_job_id(Description &description, std::uint32_t id) {
    if constexpr (requires { description.job_id; })
        description.job_id = id;
    else
        description.step_id.job_id = id;
}

// Some functions of the API return the error itself, some return -1 and set errno.
int error_code(int returned) { return returned > 0 ? returned : errno; }

std::string text_or_empty(const char *text) { return text == nullptr ? std::string() : std::string(text); }

std::vector<std::string> split(std::string_view list) {
    std::vector<std::string> out;
    while (!list.empty()) {
        const auto part = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), part.size() + 1));
        out.emplace_back(part);
    }
    return out;
}

// "n[1-3,7]" as names.
std::vector<std::string> names_of(const std::string &list) {
    auto *const names = slurm_hostlist_create(list.c_str());
    std::vector<std::string> out;
    if (names == nullptr)
        return out;
    while (char *const name = slurm_hostlist_shift(names)) {
        out.emplace_back(name);
        std::free(name); // NOLINT(cppcoreguidelines-no-malloc): Slurm's own, made with malloc
    }
    slurm_hostlist_destroy(names);
    return out;
}

// Only with SHOW_DETAIL; empty also where Slurm's two lists do not agree.
std::vector<GpuShare> shares_of(const slurm_job_info_t &record) {
    const auto names = names_of(text_or_empty(record.nodes));
    std::vector<GpuShare> out;
    if (record.gres_detail_str == nullptr || names.size() != record.gres_detail_cnt)
        return out;
    const std::span details(record.gres_detail_str, record.gres_detail_cnt);
    for (std::size_t i = 0; i < names.size(); ++i)
        if (const auto gpus = gpus_of(text_or_empty(details[i])).value_or(0); gpus > 0)
            out.push_back({.node = names[i], .gpus = gpus});
    return out;
}

// Limits that a job with fewer GPUs, and the CPUs and memory that come with them, might keep.
constexpr std::array<std::uint32_t, 24> kLimitsOfSize{WAIT_QOS_GRP_CPU,
                                                      WAIT_QOS_GRP_MEM,
                                                      WAIT_QOS_GRP_GRES,
                                                      WAIT_QOS_MAX_CPU_PER_JOB,
                                                      WAIT_QOS_MAX_MEM_PER_JOB,
                                                      WAIT_QOS_MAX_GRES_PER_JOB,
                                                      WAIT_QOS_MAX_CPU_PER_NODE,
                                                      WAIT_QOS_MAX_MEM_PER_NODE,
                                                      WAIT_QOS_MAX_GRES_PER_NODE,
                                                      WAIT_QOS_MAX_CPU_PER_USER,
                                                      WAIT_QOS_MAX_MEM_PER_USER,
                                                      WAIT_QOS_MAX_GRES_PER_USER,
                                                      WAIT_QOS_MAX_CPU_PER_ACCT,
                                                      WAIT_QOS_MAX_MEM_PER_ACCT,
                                                      WAIT_QOS_MAX_GRES_PER_ACCT,
                                                      WAIT_ASSOC_GRP_CPU,
                                                      WAIT_ASSOC_GRP_MEM,
                                                      WAIT_ASSOC_GRP_GRES,
                                                      WAIT_ASSOC_MAX_CPU_PER_JOB,
                                                      WAIT_ASSOC_MAX_MEM_PER_JOB,
                                                      WAIT_ASSOC_MAX_GRES_PER_JOB,
                                                      WAIT_ASSOC_MAX_CPU_PER_NODE,
                                                      WAIT_ASSOC_MAX_MEM_PER_NODE,
                                                      WAIT_ASSOC_MAX_GRES_PER_NODE};

// Of one that waits only where the number of its nodes is known.
HostMemory memory_of(const slurm_job_info_t &record, bool runs) {
    HostMemory out{.all = 0, .per_gpu = memory_per_gpu(text_or_empty(record.mem_per_tres))};
    if (runs)
        out.all = memory_in_tres(text_or_empty(record.tres_alloc_str));
    else if (record.max_nodes == record.num_nodes)
        out.all = memory_in_tres(text_or_empty(record.tres_req_str));
    return out;
}

Waiting waiting_of(const slurm_job_info_t &record) {
    if (std::ranges::find(kLimitsOfSize, record.state_reason) != kLimitsOfSize.end())
        return Waiting::kForSize;
    switch (record.state_reason) {
    case WAIT_NO_REASON:
    case WAIT_PRIORITY:
    case WAIT_RESOURCES:
        return record.priority == 0 ? Waiting::kForOther : Waiting::kForRoom;
    case WAIT_TIME:
        return Waiting::kForTime;
    default:
        return Waiting::kForOther;
    }
}

Job job_of(const slurm_job_info_t &record) {
    const auto base = record.job_state & JOB_STATE_BASE;
    const bool runs = base == JOB_RUNNING;
    const bool holds = runs || base == JOB_SUSPENDED;
    return Job{.known = true,
               .id = record.job_id,
               .fate = fate_of(record.job_state, record.preempt_time, record.exit_code),
               .completing = (record.job_state & JOB_COMPLETING) != 0,
               .pending = base == JOB_PENDING,
               .running = runs,
               .state = std::string(state_word(record.job_state)),
               .uid = record.user_id,
               .gid = record.group_id,
               .batch = record.batch_flag != 0,
               .part = record.het_job_id != 0,
               .may_requeue = record.requeue != 0,
               .restarts = record.restart_cnt,
               .gpus = runs ? gpus_of(text_or_empty(record.gres_total)) : std::nullopt,
               .batch_host = text_or_empty(record.batch_host),
               .nodes = text_or_empty(record.nodes),
               .name = text_or_empty(record.name),
               .partition = text_or_empty(record.partition),
               .features = text_or_empty(record.features),
               .qos = text_or_empty(record.qos),
               .eligible = record.eligible_time,
               .begin = base == JOB_PENDING && record.state_reason == WAIT_TIME ? record.start_time : 0,
               .started = record.start_time,
               .waiting = waiting_of(record),
               .site_factor = static_cast<std::int32_t>(record.site_factor - NICE_OFFSET),
               .tasks = record.num_tasks,
               .least_nodes = record.num_nodes,
               .most_nodes = record.max_nodes,
               .shares = holds ? shares_of(record) : std::vector<GpuShare>(),
               .comment = text_or_empty(record.comment),
               .admin_comment = text_or_empty(record.admin_comment),
               .wishes = {.required_nodes = text_or_empty(record.req_nodes),
                          .excluded_nodes = text_or_empty(record.exc_nodes),
                          .gpus = {.per_job = text_or_empty(record.tres_per_job),
                                   .per_node = text_or_empty(record.tres_per_node),
                                   .per_socket = text_or_empty(record.tres_per_socket),
                                   .per_task = text_or_empty(record.tres_per_task),
                                   .nodes = record.num_nodes},
                          .memory = memory_of(record, runs)}};
}

Node node_of(const node_info_t &record) {
    return Node{.known = true,
                .down = (record.node_state & NODE_STATE_BASE) == NODE_STATE_DOWN,
                .leaves = (record.node_state & (NODE_STATE_DRAIN | NODE_STATE_FAIL)) != 0,
                .reason = text_or_empty(record.reason),
                .name = text_or_empty(record.name),
                .gpus = gpus_of(text_or_empty(record.gres)).value_or(0),
                .leaf = {},
                .partitions = split(text_or_empty(record.partitions)),
                .gpu_types = gpu_types_of(text_or_empty(record.gres)),
                .features = split(text_or_empty(record.features_act))};
}

// By node. Not by the API: topology/tree of 24.11 does not load into programs that only have libslurm.
Expected<std::map<std::string, std::string>> load_leaves() {
    auto printed = answer_of({"scontrol", "show", "topology"}, Deadline::after(kPatience));
    if (!printed)
        return propagate(printed);
    std::map<std::string, std::string> out;
    for (const auto &leaf : leaves_of(*printed))
        for (auto &node : names_of(leaf.nodes))
            out.emplace(std::move(node), leaf.name);
    return out;
}

using NodeMessage = std::unique_ptr<node_info_msg_t, decltype(&slurm_free_node_info_msg)>;
using JobMessage = std::unique_ptr<job_info_msg_t, decltype(&slurm_free_job_info_msg)>;

// slurmctld knows a caller by the effective user of the process that has asked munge.
class Acting {
  public:
    [[nodiscard]] Expected<void> begin(const User &user) {
        if (setegid(user.gid) != 0)
            return std::unexpected(errno_error("act with", fmt::format("gid {}", user.gid)));
        group_ = true;
        if (seteuid(user.uid) != 0)
            return std::unexpected(errno_error("act as", fmt::format("uid {}", user.uid)));
        return {};
    }
    Acting() = default;
    Acting(const Acting &) = delete;
    Acting &operator=(const Acting &) = delete;
    // Whoever goes on as somebody else than he thinks must not go on.
    ~Acting() {
        if (seteuid(user_) != 0 || (group_ && setegid(own_group_) != 0))
            std::abort();
    }

  private:
    uid_t user_ = geteuid();
    gid_t own_group_ = getegid();
    bool group_ = false;
};

Expected<void> ask_to_requeue(std::uint32_t id, std::uint32_t flags) {
    if (const int returned = requeue(slurm_requeue, id, flags); returned != 0) {
        const int code = error_code(returned);
        return failure("requeue job", std::to_string(id), with_remedy(slurm_strerror(code), code), code);
    }
    return {};
}

// Texts of a description: Slurm only reads them.
void put(char *&field, const std::optional<std::string> &text, std::vector<std::string> &kept) {
    if (!text)
        return;
    kept.push_back(*text);
    field = kept.back().data();
}

} // namespace

Library::Library() { slurm_init(nullptr); }
Library::~Library() { slurm_fini(); }

Expected<Settings> settings() {
    slurm_conf_t *loaded = nullptr;
    if (const int returned = slurm_load_ctl_conf(0, &loaded); returned != 0) {
        const int code = error_code(returned);
        return failure("ask slurmctld for", "its configuration", slurm_strerror(code), code);
    }
    // Not freed: 26.05 has no function for it, and it is asked for once.
    return Settings{.cluster = text_or_empty(loaded->cluster_name),
                    .state_directory = text_or_empty(loaded->state_save_location)};
}

Expected<Job> load_job(std::uint32_t id) {
    job_info_msg_t *loaded = nullptr;
    if (const int returned = load(slurm_load_job, &loaded, id); returned != 0) {
        const int code = error_code(returned);
        if (code == ESLURM_INVALID_JOB_ID)
            return Job{};
        return failure("ask slurmctld for job", std::to_string(id), slurm_strerror(code), code);
    }
    const JobMessage message(loaded, slurm_free_job_info_msg);
    // Of a heterogeneous job or an array there are more records.
    const std::span records(message->job_array, message->record_count);
    const auto found =
        std::ranges::find_if(records, [&](const slurm_job_info_t &record) { return record.job_id == id; });
    if (found == records.end())
        return failure("ask slurmctld for job", std::to_string(id),
                       fmt::format("it answers with {} other jobs", records.size()), EPROTO);
    return job_of(*found);
}

Expected<std::vector<Job>> load_jobs() {
    job_info_msg_t *loaded = nullptr;
    if (const int returned = slurm_load_jobs(0, &loaded, kShow); returned != 0) {
        const int code = error_code(returned);
        return failure("ask slurmctld for", "its jobs", slurm_strerror(code), code);
    }
    const JobMessage message(loaded, slurm_free_job_info_msg);
    std::vector<Job> out;
    for (const auto &record : std::span(message->job_array, message->record_count))
        out.push_back(job_of(record));
    return out;
}

Expected<std::vector<Node>> load_nodes() {
    node_info_msg_t *loaded = nullptr;
    if (const int returned = slurm_load_node(0, &loaded, SHOW_ALL | SHOW_LOCAL); returned != 0) {
        const int code = error_code(returned);
        return failure("ask slurmctld for", "its nodes", slurm_strerror(code), code);
    }
    const NodeMessage message(loaded, slurm_free_node_info_msg);
    // slurmctld does not say in which partitions a node is: its clients find out.
    partition_info_msg_t *partitions = nullptr;
    if (const int returned = slurm_load_partitions(0, &partitions, SHOW_ALL | SHOW_LOCAL); returned != 0) {
        const int code = error_code(returned);
        return failure("ask slurmctld for", "its partitions", slurm_strerror(code), code);
    }
    slurm_populate_node_partitions(loaded, partitions);
    slurm_free_partition_info_msg(partitions);
    auto leaves = load_leaves();
    if (!leaves)
        return propagate(leaves);
    std::vector<Node> out;
    for (const auto &record : std::span(message->node_array, message->record_count)) {
        if (record.name == nullptr) // of one that was deleted
            continue;
        out.push_back(node_of(record));
        if (const auto leaf = leaves->find(record.name); leaf != leaves->end())
            out.back().leaf = leaf->second;
    }
    return out;
}

Expected<Node> load_node(const std::string &name) {
    node_info_msg_t *loaded = nullptr;
    std::string named = name;
    const auto *const words = "ask slurmctld for node";
    if (const int returned = slurm_load_node_single(&loaded, named.data(), SHOW_ALL | SHOW_LOCAL);
        returned != 0) {
        const int code = error_code(returned);
        if (code == ESLURM_INVALID_NODE_NAME)
            return Node{};
        return failure(words, name, slurm_strerror(code), code);
    }
    const NodeMessage message(loaded, slurm_free_node_info_msg);
    for (const auto &record : std::span(message->node_array, message->record_count))
        if (text_or_empty(record.name) == name)
            return node_of(record);
    return Node{};
}

Expected<void> requeue_job(std::uint32_t id, bool hold) {
    auto before = load_job(id);
    if (!before)
        return propagate(before);
    // Else also one that has ended would be.
    const bool may_have_ended = before->fate == Fate::kTimeout || before->fate == Fate::kTerminated;
    const std::uint32_t flags = (may_have_ended ? 0 : JOB_RUNNING) | (hold ? JOB_REQUEUE_HOLD : 0);
    if (auto asked = ask_to_requeue(id, flags); !asked)
        return asked;
    // That the job does not run is no error to slurmctld.
    auto after = load_job(id);
    if (!after)
        return propagate(after);
    const bool again = after->known && after->restarts != before->restarts;
    if (again || after->fate == Fate::kRequeued)
        return {};
    return failure(
        "requeue job", std::to_string(id),
        with_remedy("it has ended: only a job that runs, is suspended, has come to its time limit or "
                    "was ended by SIGTERM can be requeued",
                    ESLURM_ALREADY_DONE),
        ESLURM_ALREADY_DONE);
}

Expected<void> requeue_running(std::uint32_t id) { return ask_to_requeue(id, JOB_RUNNING); }

Expected<void> update_job(std::uint32_t id, const Change &change, std::optional<User> user) {
    job_desc_msg_t wish;
    slurm_init_job_desc_msg(&wish);
    set_job_id(wish, id);
    std::vector<std::string> kept;
    kept.reserve(8); // pointers into it stay
    put(wish.comment, change.comment, kept);
    put(wish.admin_comment, change.admin_comment, kept);
    put(wish.req_nodes, change.required_nodes, kept);
    put(wish.exc_nodes, change.excluded_nodes, kept);
    put(wish.tres_per_job, change.gpus.per_job, kept);
    put(wish.tres_per_node, change.gpus.per_node, kept);
    put(wish.tres_per_task, change.gpus.per_task, kept);
    if (change.begin)
        wish.begin_time = *change.begin;
    if (change.site_factor)
        wish.site_factor = NICE_OFFSET + static_cast<std::uint32_t>(*change.site_factor);
    Acting acting;
    if (user && geteuid() == 0)
        if (auto acts = acting.begin(*user); !acts)
            return acts;
    if (const int returned = slurm_update_job(&wish); returned != 0) {
        const int code = error_code(returned);
        return failure("update job", std::to_string(id), with_remedy(slurm_strerror(code), code), code);
    }
    return {};
}

} // namespace singularity::slurm
