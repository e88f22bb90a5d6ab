// SPDX-License-Identifier: GPL-2.0-or-later
#include "step_request.hpp"

#include "common/identity.hpp"
#include "common/text.hpp"
#include "environment.hpp"
#include "image_options.hpp"
#include "node/spec.hpp"
#include "publish_option.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace singularity::task {

namespace {

constexpr std::size_t kHostsLimit = 65536;

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

// "4(x2),3": of each host, in their order.
Expected<std::vector<std::uint32_t>> tasks_of_hosts(std::string_view text) {
    std::vector<std::uint32_t> out;
    for (const std::string_view part : parts_of(text)) {
        const auto bracket = part.find("(x");
        const auto tasks = number_in(part.substr(0, bracket));
        const auto times = bracket == std::string_view::npos
                               ? std::optional<std::uint32_t>(1)
                               : number_in(part.substr(bracket + 2, part.size() - bracket - 3));
        if (!tasks || !times || *tasks == 0 || *times == 0 || *times > kHostsLimit - out.size())
            return refuse(
                fmt::format("SLURM_STEP_TASKS_PER_NODE={} does not say how many tasks the hosts have", text));
        out.insert(out.end(), *times, *tasks);
    }
    return out;
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
    if (own.size() * request.join.ranks_here != *all)
        return refuse(
            fmt::format("it is bound to {} of the {} GPUs that its step has here for {} tasks: elastic "
                        "tasks see all GPUs, or as many each of their own (srun --gpus-per-task)",
                        own.size(), *all, request.join.ranks_here));
    const auto local = number(environment, "SLURM_LOCALID");
    if (!local)
        return std::unexpected(local.error());
    const auto first = *local * own.size();
    for (auto at = first; at < first + own.size(); ++at)
        request.visible_devices += fmt::format("{}{}", at == first ? "" : ",", at);
    return {};
}

// What is the same for steps and scripts.
Expected<void> add_job(StepRequest &out, const std::vector<std::string> &environment) {
    if (const auto cluster = value_of(environment, "SLURM_CLUSTER_NAME"))
        out.join.cluster = *cluster;
    if (const auto store = value_of(environment, kStoreVariable))
        out.join.store = *store;
    if (const auto text = value_of(environment, kPublishVariable)) {
        auto ports = spank::parse_published_ports(*text);
        if (!ports)
            return propagate(ports);
        out.join.publish = *std::move(ports);
    }
    if (const auto identity = value_of(environment, kIdentityVariable)) {
        if (!is_identity(*identity))
            return refuse(
                fmt::format("{}={} is not what the job_submit plugin writes, {} hexadecimal digits: "
                            "leave it as Slurm sets it",
                            kIdentityVariable, *identity, 2 * kIdentityBytes));
        out.join.identity = *identity;
    }
    for (const auto &[name, into] :
         {std::pair("SLURM_RESTART_COUNT", &out.join.restarts), std::pair(kEveryVariable, &out.join.every)})
        if (const auto text = value_of(environment, name)) {
            const auto given = number(environment, name);
            if (!given)
                return std::unexpected(given.error());
            *into = *given;
        }
    return add_devices(out, environment);
}

// A number, a checkpoint, and the input of each rank: the last two, or the last one, may be missing.
Expected<void> add_number(StepRequest &out, std::string_view text) {
    auto next = [rest = text]() mutable {
        const auto found = rest.substr(0, rest.find(' '));
        rest.remove_prefix(std::min(found.size() + 1, rest.size()));
        return found;
    };
    const auto given = number_in(next());
    if (!given)
        return refuse(
            fmt::format("{}={} begins with no number: leave it as srun sets it", kGoesOnVariable, text));
    out.join.number = *given;
    out.join.checkpoint = next();
    const auto had = parts_of(next());
    if (had.empty())
        return {};
    if (out.join.hosts.size() > 1 || out.join.rank >= had.size())
        return refuse(
            fmt::format("its input can be passed on only to {} tasks on one host, as they were when "
                        "it was saved: give the job one node, or the step (-N1)",
                        had.size()));
    const auto own = had[out.join.rank];
    const auto [end, code] = std::from_chars(own.data(), own.data() + own.size(), out.had);
    if (code != std::errc() || end != own.data() + own.size())
        return refuse(fmt::format("{}={} has {} in place of a number of bytes: leave it as srun sets it",
                                  kGoesOnVariable, text, own));
    return {};
}

Expected<void> add_places(StepRequest &out, const std::vector<std::string> &environment) {
    const auto places = value_of(environment, kPlacesVariable);
    if (!places)
        return {};
    for (const auto place : parts_of(*places)) {
        const auto number = number_in(place);
        if (!number)
            return refuse(fmt::format("{}={} are no numbers: leave it as the SPANK plugin sets it",
                                      kPlacesVariable, *places));
        out.join.places.push_back(*number);
    }
    return {};
}

static_assert(spank::kMostMounts == node::kImageMountLimit);

Expected<void> add_image(StepRequest &out, const std::vector<std::string> &environment) {
    const auto directory = value_of(environment, kImageVariable);
    if (!directory)
        return {};
    out.join.image.directory = *directory;
    if (const auto text = value_of(environment, kMountsVariable)) {
        auto mounts = spank::parse_image_mounts(*text);
        if (!mounts)
            return propagate(mounts);
        for (auto &one : *mounts)
            out.join.image.mounts.push_back({.source = std::move(one.source),
                                             .target = std::move(one.target),
                                             .read_only = one.read_only});
    }
    if (const auto directory_in_it = value_of(environment, kWorkdirVariable))
        out.join.program.directory = *directory_in_it;
    if (const auto root = value_of(environment, kRootVariable)) {
        if (auto checked = spank::check_root_option(*root); !checked)
            return checked;
        out.join.image.root = static_cast<std::uint32_t>(
            *root == spank::kRootWritable ? node::RootIs::writable : node::RootIs::read_only);
    }
    return {};
}

} // namespace

Expected<StepRequest> script_request(const std::vector<std::string> &environment) {
    StepRequest out;
    const auto host = value_of(environment, "SLURMD_NODENAME");
    if (!host)
        return refuse("SLURMD_NODENAME is not set: only Slurm starts batch scripts");
    out.join.hosts = {std::string(*host)};
    const auto all = parts_of(value_of(environment, kHostsVariable).value_or(""));
    if (const auto found = std::ranges::find(all, *host); found != all.end())
        out.join.places = {static_cast<std::uint32_t>(found - all.begin()) + 1};
    out.join.job_hosts = static_cast<std::uint32_t>(all.size());
    out.join.ranks = out.join.ranks_here = 1;
    out.join.of_script = true; // it is one, and is run again as what one has begun
    if (auto added = add_job(out, environment); !added)
        return propagate(added);
    return out;
}

Expected<StepRequest> step_request(const std::vector<std::string> &environment) {
    StepRequest out;
    const auto hosts = value_of(environment, kHostsVariable);
    if (!hosts || hosts->empty())
        return refuse(fmt::format("{} is not set: the SPANK plugin does that", kHostsVariable));
    for (const auto host : parts_of(*hosts))
        out.join.hosts.emplace_back(host);
    if (auto added = add_places(out, environment); !added)
        return propagate(added);
    if (const auto count = value_of(environment, kJobHostsVariable)) {
        const auto number = number_in(*count);
        if (!number)
            return refuse(fmt::format("{}={} is no number: leave it as the SPANK plugin sets it",
                                      kJobHostsVariable, *count));
        out.join.job_hosts = *number;
    }
    const auto spread = value_of(environment, "SLURM_STEP_TASKS_PER_NODE");
    if (!spread)
        return refuse("SLURM_STEP_TASKS_PER_NODE is not set: only Slurm's srun starts such tasks");
    const auto tasks = tasks_of_hosts(*spread);
    if (!tasks)
        return std::unexpected(tasks.error());
    auto rank = number(environment, "SLURM_PROCID");
    auto node = number(environment, "SLURM_NODEID");
    for (auto *const one : {&rank, &node})
        if (!*one)
            return propagate(*one);
    if (*node >= tasks->size() || tasks->size() != out.join.hosts.size())
        return refuse(fmt::format("SLURM_NODEID={} and SLURM_STEP_TASKS_PER_NODE={} are not of {} hosts",
                                  *node, *spread, out.join.hosts.size()));
    out.join.ranks_here = (*tasks)[*node];
    out.join.ranks = std::accumulate(tasks->begin(), tasks->end(), 0U);
    out.join.rank = *rank;
    out.join.node = *node;
    out.join.of_script = value_of(environment, kOfScriptVariable).has_value();
    if (auto added = add_image(out, environment); !added)
        return propagate(added);
    if (auto added = add_job(out, environment); !added)
        return propagate(added);
    const bool is_saved = value_of(environment, kOfScriptVariable) == kSavedScript;
    const auto name = value_of(environment, kGoesOnVariable);
    if (is_saved && name) {
        if (auto added = add_number(out, *name); !added)
            return propagate(added);
        out.join.every = 0; // it is saved when its script is, and with it
    } else if (is_saved) {  // its script goes on where it was saved, and has begun this step since then
        out.join.of_script = false;
        out.join.restarts = 0;
        out.join.every = 0;
        out.join.identity.clear();
    }
    return out;
}

} // namespace singularity::task
