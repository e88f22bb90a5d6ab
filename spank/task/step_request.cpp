// SPDX-License-Identifier: GPL-2.0-or-later
#include "step_request.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace singularity::task {

namespace {

std::optional<std::string_view> value_of(const std::vector<std::string> &environment, std::string_view name) {
    for (const std::string_view entry : environment)
        if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
            return entry.substr(name.size() + 1);
    return std::nullopt;
}

std::vector<std::string> parts_of(std::string_view text) {
    std::vector<std::string> out;
    while (!text.empty()) {
        out.emplace_back(text.substr(0, text.find(',')));
        text.remove_prefix(std::min(text.size(), out.back().size() + 1));
    }
    return out;
}

std::optional<std::uint32_t> number_in(std::string_view text) {
    std::uint32_t out = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), out);
    return error == std::errc() && end == text.end() ? std::optional(out) : std::nullopt;
}

std::unexpected<Error> refuse(std::string why) {
    return failure("run as a task of an elastic step", "", std::move(why), EINVAL);
}

Expected<std::uint32_t> number(const std::vector<std::string> &environment, std::string_view name) {
    const auto text = value_of(environment, name);
    const auto out = text ? number_in(*text) : std::nullopt;
    if (!out)
        return refuse(text ? fmt::format("{}={} is not a whole number", name, *text)
                           : fmt::format("{} is not set: only Slurm's srun starts such tasks", name));
    return *out;
}

// "4(x2)", or "4": every host has as many. "3,2": it has not.
Expected<std::uint32_t> tasks_per_node(std::string_view text) {
    const auto out = number_in(text.substr(0, text.find('(')));
    if (!out || *out == 0 || text.contains(','))
        return refuse(fmt::format("its hosts have {} tasks: elastic steps need as many on each (srun "
                                  "--ntasks-per-node)",
                                  text));
    return *out;
}

// The devices of the host: all of the step's there. A task that Slurm has bound to some of them sees as many
// of the virtual node's, its own.
Expected<void> add_devices(StepRequest &request, const std::vector<std::string> &environment) {
    const auto visible = value_of(environment, "CUDA_VISIBLE_DEVICES");
    if (!visible || visible->empty())
        return {};
    const auto own = parts_of(*visible);
    for (std::uint32_t at = 0; at < own.size(); ++at)
        if (own[at] != std::to_string(at))
            return refuse(fmt::format("CUDA_VISIBLE_DEVICES={} does not count from 0: cgroup.conf must say "
                                      "ConstrainDevices=yes",
                                      *visible));
    const auto all = number(environment, "SLURM_GPUS_ON_NODE");
    if (!all)
        return std::unexpected(all.error());
    request.join.devices = *all;
    if (*all == own.size())
        return {};
    if (own.size() * request.join.ranks_per_node != *all)
        return refuse(
            fmt::format("it is bound to {} of the {} GPUs that its step has here for {} tasks: elastic "
                        "tasks see all GPUs, or as many each of their own (srun --gpus-per-task)",
                        own.size(), *all, request.join.ranks_per_node));
    const auto local = request.join.rank % request.join.ranks_per_node;
    const auto first = local * own.size();
    for (auto at = first; at < first + own.size(); ++at)
        request.visible_devices += fmt::format("{}{}", at == first ? "" : ",", at);
    return {};
}

} // namespace

Expected<StepRequest> step_request(const std::vector<std::string> &environment) {
    StepRequest out;
    const auto hosts = value_of(environment, kHostsVariable);
    if (!hosts || hosts->empty())
        return refuse(fmt::format("{} is not set: the SPANK plugin does that", kHostsVariable));
    out.join.hosts = parts_of(*hosts);
    const auto spread = value_of(environment, "SLURM_STEP_TASKS_PER_NODE");
    if (!spread)
        return refuse("SLURM_STEP_TASKS_PER_NODE is not set: only Slurm's srun starts such tasks");
    auto per_node = tasks_per_node(*spread);
    auto rank = number(environment, "SLURM_PROCID");
    auto node = number(environment, "SLURM_NODEID");
    for (auto *const one : {&per_node, &rank, &node})
        if (!*one)
            return propagate(*one);
    out.join.ranks_per_node = *per_node;
    out.join.rank = *rank;
    out.join.node = *node;
    if (auto added = add_devices(out, environment); !added)
        return propagate(added);
    return out;
}

} // namespace singularity::task
