// SPDX-License-Identifier: GPL-2.0-or-later
#include "allocation.hpp"

#include "environment.hpp"
#include "gpu_view.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

namespace singularity::task {

namespace {

using Number = std::uint64_t; // products of two of Slurm's fit

struct Allocation {
    Number gpus = 0;
    Number nodes = 0;
    Number cpus = 0;
    Number tasks = 0; // 0: nobody has said how many
};

using Value = std::optional<std::string>;

std::optional<Number> count_in_text(std::string_view text) {
    std::uint32_t out = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), out);
    return error == std::errc() && end == text.end() ? std::optional<Number>(out) : std::nullopt;
}

// "8(x2),4": on all nodes.
std::optional<Number> sum_of_nodes(std::string_view text) {
    Number out = 0;
    for (const auto part : parts_of(text)) {
        const auto bracket = part.find("(x");
        const auto each = count_in_text(part.substr(0, bracket));
        const auto times = bracket == std::string_view::npos
                               ? std::optional<Number>(1)
                               : count_in_text(part.substr(bracket + 2, part.size() - bracket - 3));
        if (!each || !times)
            return std::nullopt;
        out += *each * *times;
    }
    return out;
}

// Behind the last of ":" and "=": "8", "a100:8", "gres/gpu=8", "gres/gpu:per_task:1".
std::size_t start_of_count(std::string_view part) {
    const auto at = part.find_last_of(":=");
    return at == std::string_view::npos ? 0 : at + 1;
}

// Of GPUs, of all types.
std::optional<Number> count_in(std::string_view text) {
    if (text.empty())
        return std::nullopt;
    Number out = 0;
    for (const auto part : parts_of(text)) {
        const auto count = count_in_text(part.substr(start_of_count(part)));
        if (!count)
            return std::nullopt;
        out += *count;
    }
    return out;
}

// How many there are of which type, only Slurm can say.
Value with_count(std::string_view text, Number count) {
    if (text.contains(',') || count == 0)
        return std::nullopt;
    return fmt::format("{}{}", text.substr(0, start_of_count(text)), count);
}

bool has_for_tasks(Number each, Number all, Number tasks) { return each * std::max<Number>(tasks, 1) <= all; }

Number share_of_cpus(const Allocation &job) {
    return std::max<Number>(job.cpus / std::max<Number>(job.tasks, 1), 1);
}

// Each: what becomes of the variable, which may be what it was.
Value all_gpus(std::string_view text, const Allocation &job) {
    return count_in(text).value_or(job.gpus) == job.gpus ? std::string(text) : with_count(text, job.gpus);
}

Value gpus_of_node(std::string_view text, const Allocation &job) {
    const auto each = count_in(text);
    if (!each || job.nodes == 0 || *each * job.nodes == job.gpus)
        return std::string(text);
    return with_count(text, job.gpus % job.nodes == 0 ? job.gpus / job.nodes : 0);
}

Value gpus_of_socket(std::string_view text, const Allocation &job) {
    return count_in(text).value_or(0) <= job.gpus ? Value(text) : std::nullopt;
}

Value gpus_of_task(std::string_view text, const Allocation &job) {
    return has_for_tasks(count_in(text).value_or(0), job.gpus, job.tasks) ? Value(text) : std::nullopt;
}

Value binding(std::string_view text, const Allocation &job) {
    return text.contains("per_task:") ? gpus_of_task(text, job) : Value(text);
}

Value cpus_of_task(std::string_view text, const Allocation &job) {
    if (has_for_tasks(count_in_text(text).value_or(0), job.cpus, job.tasks))
        return std::string(text);
    return std::to_string(share_of_cpus(job));
}

// "cpu=2,gres/gpu=1", with ":" in some releases.
Value tres_of_task(std::string_view text, const Allocation &job) {
    std::string out;
    for (const auto part : parts_of(text)) {
        Value kept(part);
        if (part.starts_with("gres/gpu"))
            kept = gpus_of_task(part, job);
        else if (part.starts_with("cpu") && !has_for_tasks(count_in(part).value_or(0), job.cpus, job.tasks))
            kept = with_count(part, share_of_cpus(job));
        if (kept)
            out += (out.empty() ? "" : ",") + *kept;
    }
    return out.empty() ? std::nullopt : Value(out);
}

// Fewer tasks than the job has would be started.
Value tasks_of_gpu(std::string_view text, const Allocation &job) {
    return job.tasks == 0 || count_in_text(text).value_or(0) * job.gpus == job.tasks ? Value(text)
                                                                                     : std::nullopt;
}

Value tasks_of_node(std::string_view text, const Allocation &job) {
    const auto each = count_in_text(text);
    return !each || *each * job.nodes >= job.tasks ? Value(text) : std::nullopt;
}

Value view(std::string_view text, const Allocation &job) {
    if (job.gpus == 0)
        return std::string(text); // nobody has asked how many there are
    auto known = spank::gpu_view_of(text);
    if (!known || job.gpus > std::numeric_limits<std::uint32_t>::max())
        return std::nullopt;
    known->now = static_cast<std::uint32_t>(job.gpus);
    return to_string(*known);
}

struct Rule {
    std::string_view variable;
    bool about_gpus;
    Value (*becomes)(std::string_view, const Allocation &);
};

constexpr std::array kRules{
    Rule{"SLURM_GPUS", true, all_gpus},
    Rule{"SLURM_GPUS_PER_NODE", true, gpus_of_node},
    Rule{"SLURM_GPUS_PER_SOCKET", true, gpus_of_socket},
    Rule{"SLURM_GPUS_PER_TASK", true, gpus_of_task},
    Rule{"SLURM_NTASKS_PER_GPU", true, tasks_of_gpu},
    Rule{"SLURM_TRES_PER_TASK", true, tres_of_task},
    Rule{"SLURM_TRES_BIND", true, binding},
    Rule{"SLURM_GPU_BIND", true, binding},
    Rule{spank::kGpuViewVariable, false, view},
    Rule{"SLURM_NTASKS_PER_NODE", false, tasks_of_node},
    Rule{"SLURM_CPUS_PER_TASK", false, cpus_of_task},
};

// "gres/gpu=1" of "cpu=2,gres/gpu=1"; 0: none.
Number gpus_in_tres(std::string_view text) {
    for (const auto part : parts_of(text))
        if (part.starts_with("gres/gpu"))
            return count_in(part).value_or(0);
    return 0;
}

constexpr std::string_view kOvercommit = "SLURM_OVERCOMMIT";

} // namespace

Change requested_gpus(const std::vector<std::string> &environment) {
    const auto value = [&](std::string_view name) { return value_of(environment, name).value_or(""); };
    const auto number = [&](std::string_view name) { return count_in_text(value(name)).value_or(0); };
    const auto gpus = [&](std::string_view name) { return count_in(value(name)).value_or(0); };
    const auto tasks = number("SLURM_NTASKS");
    const auto tasks_of_node = number("SLURM_NTASKS_PER_NODE");
    // Of which there may be fewer now than it was submitted for.
    const auto nodes = tasks_of_node != 0 && tasks != 0 ? (tasks + tasks_of_node - 1) / tasks_of_node
                                                        : number("SLURM_JOB_NUM_NODES");
    auto each = gpus("SLURM_GPUS_PER_TASK");
    if (each == 0)
        each = gpus_in_tres(value("SLURM_TRES_PER_TASK"));
    auto all = gpus("SLURM_GPUS");
    if (all == 0)
        all = gpus("SLURM_GPUS_PER_NODE") * nodes;
    if (all == 0)
        all = each * tasks;
    // Where sbatch was called in another job, that one's variables may be here as well.
    const auto range = value("SINGULARITY_ELASTIC");
    if (const auto most = count_in_text(range.substr(std::min(range.size(), range.find('-') + 1))))
        all = std::min(all, *most);
    if (all == 0 || std::max(all, each) > std::numeric_limits<std::uint32_t>::max())
        return {.name = spank::kGpuViewVariable, .value = std::nullopt};
    const auto known = static_cast<std::uint32_t>(all);
    return {.name = spank::kGpuViewVariable,
            .value = to_string(spank::GpuView{
                .requested = known, .now = known, .per_task = static_cast<std::uint32_t>(each)})};
}

bool asks_for_gpus(const std::vector<std::string> &environment) {
    return std::ranges::any_of(kRules, [&](const Rule &rule) {
        return rule.about_gpus && value_of(environment, rule.variable).has_value();
    });
}

std::vector<Change> fit_to_allocation(const std::vector<std::string> &environment, std::uint32_t gpus) {
    const auto nodes = count_in_text(value_of(environment, "SLURM_JOB_NUM_NODES").value_or(""));
    const auto cpus = sum_of_nodes(value_of(environment, "SLURM_JOB_CPUS_PER_NODE").value_or(""));
    if (!nodes || !cpus || *cpus == 0)
        return {};
    // Whoever overcommits CPUs has enough of them.
    const bool overcommits = value_of(environment, kOvercommit).has_value();
    const Allocation job{.gpus = gpus,
                         .nodes = *nodes,
                         .cpus = overcommits ? std::numeric_limits<std::uint32_t>::max() : *cpus,
                         .tasks =
                             count_in_text(value_of(environment, "SLURM_NTASKS").value_or("")).value_or(0)};
    std::vector<Change> out;
    for (const auto &rule : kRules)
        if (const auto text = value_of(environment, rule.variable))
            if (auto becomes = rule.becomes(*text, job); becomes != text)
                out.push_back({.name = std::string(rule.variable), .value = std::move(becomes)});
    if (job.cpus < job.tasks)
        out.push_back({.name = std::string(kOvercommit), .value = "1"});
    return out;
}

std::optional<std::uint32_t> gpus_in(const std::string &told) {
    std::istringstream lines(told);
    constexpr std::string_view kKey = "gpus=";
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with(kKey))
            if (const auto found = count_in_text(std::string_view(line).substr(kKey.size())))
                return static_cast<std::uint32_t>(*found);
    return std::nullopt;
}

} // namespace singularity::task
