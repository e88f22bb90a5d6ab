// SPDX-License-Identifier: GPL-2.0-or-later
// Texts that users, administrators, Slurm and the kernel have written: comments of jobs, notes of agents read
// back from slurmctld, lists of GPUs, what Slurm's commands print, environments of tasks, singularity.yaml,
// /proc.
#include "checkpoint_every.hpp"
#include "common/config.hpp"
#include "common/proc.hpp"
#include "common/published_places.hpp"
#include "common/slurm/gres.hpp"
#include "common/slurm/note.hpp"
#include "common/slurm/placement.hpp"
#include "common/slurm/topology.hpp"
#include "common/slurm/verb.hpp"
#include "common/text.hpp"
#include "doctor/slurm_text.hpp"
#include "elastic_range.hpp"
#include "planner/speeds.hpp"
#include "planner/subject.hpp"
#include "publish_option.hpp"
#include "table.hpp"
#include "task/allocation.hpp"
#include "task/step_request.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

namespace singularity::test {

namespace {

std::vector<std::string> strings_in(std::string_view bytes, std::size_t count) {
    const auto views = texts_in(bytes, count);
    return {views.begin(), views.end()};
}

bool is_one_line(std::string_view text) {
    return std::ranges::none_of(text, [](char c) { return c >= 0 && c < ' '; });
}

bool reads_verb(std::string_view bytes) {
    const auto verb = slurm::parse_verb(bytes);
    if (!verb)
        expect(is_one_line(verb.error().message()), "an error that a user sees is one line");
    if (!verb || !*verb)
        return false;
    const auto again = slurm::parse_verb(slurm::to_comment(**verb));
    expect(again && *again && (*again)->kind == (*verb)->kind && (*again)->node == (*verb)->node &&
               (*again)->gpus == (*verb)->gpus,
           "a verb is read as it was written");
    const auto answer = slurm::answer(slurm::in_words(**verb));
    expect(slurm::is_answer(answer) && !*slurm::parse_verb(answer), "an answer is no verb");
    return true;
}

// A comment and what the job asked for: as agents and the planner use a note that slurmctld has kept.
bool reads_note(std::string_view bytes) {
    const auto texts = strings_in(bytes, 6);
    auto note = slurm::Note::parse(texts[0]);
    if (!note)
        return false;
    expect(is_one_line(note->text()), "a note is one line");
    expect(slurm::Note::parse(note->text())->text() == note->text(), "a note is read as it was written");
    const auto decision = slurm::decision_of(*note);
    const slurm::Wishes wishes{
        .required_nodes = texts[2],
        .excluded_nodes = texts[3],
        .gpus = {.per_job = texts[4], .per_node = texts[5], .per_socket = {}, .per_task = {}, .nodes = 2}};
    const auto verb = slurm::parse_verb(texts[1]);
    const auto placement = slurm::place(verb ? *verb : std::nullopt, wishes, *note);
    static_cast<void>(slurm::check_size(4, *note));
    auto copy = *note;
    static_cast<void>(copy.take(texts[1]));
    if (decision && slurm::decide(copy, *decision)) {
        const auto again = slurm::decision_of(copy);
        expect(again && again->waits == decision->waits && again->gpus == decision->gpus &&
                   again->nodes == decision->nodes,
               "a decision is read as it was written");
    }
    return placement.has_value() && decision.has_value();
}

// What the planner makes of a job's note: two of them, one after the other.
bool reads_job(std::string_view bytes) {
    const auto texts = strings_in(bytes, 4);
    slurm::Job job;
    job.id = 1;
    job.running = true;
    job.shares.resize(1);
    job.shares.front().gpus = 2;
    job.wishes.gpus.per_job = texts[2];
    job.wishes.gpus.per_node = texts[3];
    job.qos = texts[2];
    planner::Speeds speeds;
    bool good = false;
    for (const auto &comment : {texts[0], texts[1]}) {
        job.admin_comment = comment;
        speeds.look(job, planner::gpus_of(job));
        job.pending = !job.pending;
        const auto sizes = planner::sizes_of(job, speeds);
        expect(std::ranges::is_sorted(sizes, {}, [](const auto &size) { return size.gpus; }), "sizes ascend");
        good = planner::range_of(job).has_value() && !sizes.empty();
    }
    static_cast<void>(planner::tier_of(job));
    return good;
}

bool reads_gres(std::string_view bytes) {
    const auto gpus = slurm::gpus_of(bytes);
    const auto types = slurm::gpu_types_of(bytes);
    static_cast<void>(doctor::gpus_of(bytes));
    return gpus.value_or(0) != 0 && !types.empty();
}

bool reads_wish(std::string_view bytes) {
    const auto texts = strings_in(bytes, 4);
    const slurm::GpuWish wish{
        .per_job = texts[0], .per_node = texts[1], .per_socket = texts[2], .per_task = texts[3], .nodes = 2};
    static_cast<void>(slurm::gpu_types_wished(wish));
    const auto change = slurm::with_gpus(wish, 4);
    return slurm::gpus_wished(wish, 3) != 0 && change.has_value();
}

bool reads_topology(std::string_view bytes) {
    const auto leaves = slurm::leaves_of(bytes);
    for (const auto &leaf : leaves)
        expect(!leaf.name.empty() && !leaf.nodes.empty(), "a leaf has a name and nodes");
    return !leaves.empty();
}

bool reads_elastic_range(std::string_view bytes) {
    const spank::ElasticLimits limits{.enabled = true, .min_gpus = 1, .max_gpus = 1U << 20};
    const auto range = spank::parse_elastic_range(bytes, limits);
    if (!range)
        return false;
    expect(range->min >= limits.min_gpus && range->max.value_or(range->min) >= range->min &&
               range->max.value_or(0) <= limits.max_gpus,
           "a range is inside of its limits");
    if (range->max)
        expect(spank::parse_elastic_range(spank::to_string(*range), limits)->min == range->min,
               "a range is read as it was written");
    return true;
}

bool reads_checkpoint_every(std::string_view bytes) {
    using namespace std::chrono_literals;
    const auto time = spank::parse_checkpoint_every(bytes, 1s);
    if (!time)
        return false;
    expect(*time >= 0s && *time <= std::chrono::days(365), "a time is inside of its limits");
    expect(spank::parse_checkpoint_every(spank::to_slurm_time(*time), 1s) == *time,
           "a time is read as it was written");
    return true;
}

bool reads_published_ports(std::string_view bytes) {
    const auto ports = spank::parse_published_ports(bytes);
    if (!ports)
        return false;
    expect(!ports->empty() && ports->size() <= spank::kMostPublished,
           "published ports are inside of their limits");
    return true;
}

// As agents tell them, and as they are kept.
bool reads_published_places(std::string_view bytes) {
    const auto kept = with_places(bytes, 2, fmt::format("{}=+{}", kPublishedKey, bytes));
    expect(kept.size() <= kMostPlacesText && !kept.contains(' ') && !kept.contains('\n'),
           "places are one short word of a note");
    expect(with_places(kept, 2, "published=-") == kept, "places are read as they were written");
    return !kept.empty();
}

bool reads_configuration(std::string_view bytes) {
    const auto read = config::parse(bytes, "singularity.yaml");
    if (!read) {
        expect(is_one_line(read.error().message()), "an error of a file is one line");
        return false;
    }
    const auto again = config::parse(config::to_yaml(*read), "again.yaml");
    expect(again && *again == *read, "a configuration is read as it was written");
    return true;
}

bool reads_mountinfo(std::string_view bytes) { return !proc::mounts(bytes).empty(); }

bool reads_stat(std::string_view bytes) { return proc::stat_columns(bytes).size() > 19; }

bool reads_status(std::string_view bytes) {
    static_cast<void>(proc::status_line(bytes, ""));
    return !proc::status_line(bytes, "Uid").empty();
}

bool reads_slurm_output(std::string_view bytes) {
    static_cast<void>(doctor::parse_config(bytes));
    static_cast<void>(doctor::parse_conf(bytes));
    static_cast<void>(doctor::parse_records(bytes));
    static_cast<void>(doctor::option_of(bytes, "a"));
    static_cast<void>(doctor::has_word(bytes, "a"));
    return doctor::written_at(bytes).has_value();
}

bool reads_plugstack(std::string_view bytes) { return !doctor::parse_plugstack(bytes).empty(); }

bool reads_version(std::string_view bytes) {
    const auto version = doctor::version_of(bytes);
    if (version != 0)
        expect(doctor::version_of(doctor::release_of(version)) == version,
               "a version is read as it was written");
    return version != 0;
}

// The environment of a task or a batch script, which is its user's.
constexpr std::size_t kVariables = 64;

bool reads_task_environment(std::string_view bytes) {
    const auto request = task::step_request(strings_in(bytes, kVariables));
    if (!request)
        return false;
    expect(request->join.node < request->join.hosts.size(), "a task is on one of the step's hosts");
    return true;
}

bool reads_script_environment(std::string_view bytes) {
    const auto environment = strings_in(bytes, kVariables);
    const auto changes = task::fit_to_allocation(environment, 3);
    static_cast<void>(task::gpus_in(std::string(bytes)));
    return task::asks_for_gpus(environment) && !changes.empty();
}

bool reads_any_text(std::string_view bytes) {
    const auto once = escaped(bytes);
    expect(escaped(once) == once && is_one_line(once), "what has been escaped stays as it is");
    expect(is_one_line(quote(bytes)), "a quotation is one line");
    const std::array<std::string_view, 3> words{"elastic", "planner", ""};
    constexpr std::size_t kWord = 64; // of keys, which are short
    static_cast<void>(nearest(bytes.substr(0, kWord), words));
    return true;
}

} // namespace

std::vector<Parser> parsers() {
    return {
        {.name = "verb",
         .reads = &reads_verb,
         .good = {"singularity:migrate=n7", "singularity:resize=4", "singularity:checkpoint",
                  "singularity:migrate"}},
        {.name = "note",
         .reads = &reads_note,
         .good = {texts({"singularity: elastic=2-8 ranks=8 gpus=4 nodes=n1 plan=4@n1,n2 placed=excluded:n3",
                         "", "n1", "n2", "gres/gpu:8", ""}),
                  texts({"singularity: plan=wait", "singularity:resize=4", "", "", "", "gres/gpu:a100:4"})}},
        {.name = "job",
         .reads = &reads_job,
         .good = {texts({"singularity: elastic=1-8 ranks=8 work=0:100:c0ffee:1767225600 resumed=1767225500",
                         "singularity: elastic=1-8 ranks=8 work=0:9100:c0ffee:1767226600 resumed=1767225500",
                         "gres/gpu:2", ""})}},
        {.name = "gres",
         .reads = &reads_gres,
         .good = {"gpu:a100:2(IDX:0-1),gpu:1,nic:4", "gpu:h100(CNT:8)"}},
        {.name = "wish",
         .reads = &reads_wish,
         .good = {texts({"gres/gpu:8", "", "", ""}), texts({"", "gres:gpu:a100:2", "", ""}),
                  texts({"", "", "", "gres/gpu"})}},
        {.name = "topology",
         .reads = &reads_topology,
         .good = {"SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-3]\n",
                  "BlockName=b1 BlockIndex=0 Nodes=n1 BlockSize=3\n"}},
        {.name = "elastic-range", .reads = &reads_elastic_range, .good = {"2-8", ""}},
        {.name = "checkpoint-every",
         .reads = &reads_checkpoint_every,
         .good = {"30", "1-02:03:04", "0:10", "off"}},
        {.name = "published-ports", .reads = &reads_published_ports, .good = {"6006,8888", "1"}},
        {.name = "published-places",
         .reads = &reads_published_places,
         .good = {"2:0/6006/n1/n4:20417,batch/8888/n1/n4:20418", "0/6006/n1/n4:20417"}},
        {.name = "configuration",
         .reads = &reads_configuration,
         .good = {config::to_yaml(Config()), "elastic:\n  max_gpus: 8\nstore:\n  quota_gib: 1 # GiB\n"}},
        {.name = "mountinfo",
         .reads = &reads_mountinfo,
         .good = {"36 35 98:0 /root /a\\040b rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"}},
        {.name = "stat",
         .reads = &reads_stat,
         .good = {"7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 1 2 3\n"}},
        {.name = "status",
         .reads = &reads_status,
         .good = {"Name:\ta\nUid:\t0\t0\t0\t0\nCapEff:\t0000000000000000\n"}},
        {.name = "slurm-output",
         .reads = &reads_slurm_output,
         .good = {"Configuration data as of 2026-01-31T12:00:00\nClusterName = c # x\nA = (null)\nName=n1 "
                  "B=2\n"}},
        {.name = "plugstack",
         .reads = &reads_plugstack,
         .good = {"# all\nrequired a.so x\ninclude /etc/*.conf\n"}},
        {.name = "version", .reads = &reads_version, .good = {"slurm-wlm 24.11.5"}},
        {.name = "task-environment",
         .reads = &reads_task_environment,
         .good = {texts({"SINGULARITY_STEP_HOSTS=n1,n2", "SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_PROCID=3",
                         "SLURM_NODEID=1", "CUDA_VISIBLE_DEVICES=0", "SLURM_GPUS_ON_NODE=2",
                         "SLURM_LOCALID=1", "SLURM_RESTART_COUNT=1", "SINGULARITY_STEP_EVERY=60"})}},
        {.name = "script-environment",
         .reads = &reads_script_environment,
         .good = {texts({"SLURM_JOB_NUM_NODES=2", "SLURM_JOB_CPUS_PER_NODE=8(x2)", "SLURM_NTASKS=4",
                         "SLURM_GPUS=a100:8", "SLURM_TRES_PER_TASK=cpu=2,gres/gpu=1",
                         "SLURM_TRES_BIND=gres/gpu:per_task:1", "SLURM_GPUS_PER_NODE=4",
                         "SLURM_CPUS_PER_TASK=9"})}},
        {.name = "any-text", .reads = &reads_any_text, .good = {"a\n\x1b[2J\xc3\xa4\xf0\x9f\x98\x80\xff"}},
    };
}

} // namespace singularity::test
