// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_plan.hpp"

#include "agent/slurm/slurm_cgroup.hpp"
#include "agent/slurm/slurm_job.hpp"
#include "common/exec.hpp"
#include "common/text.hpp"
#include "gpu_view.hpp"
#include "network/plan.hpp"
#include "node/record.hpp"
#include "peers/handshake.hpp"
#include "peers/tcp.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>

namespace singularity::agent {

namespace {

namespace wire = peers::wire;

std::string address_text(std::uint32_t vni, std::uint32_t number) {
    return fmt::format("{}/{}", peers::text_of(network::address_of(vni, number)), network::kPrefix);
}

std::string node_name(std::string_view job, std::uint32_t number) {
    return fmt::format("{}-{}", job, number - 1);
}

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

constexpr std::string_view kDecimal = "0123456789";
constexpr std::size_t kStepDigits = 21; // two numbers of 32 bits

// The host's devices in equal shares; with fewer devices than nodes, several nodes have the same.
Expected<void> share_devices(const std::vector<wire::JobNode *> &nodes, const Offer &offer,
                             std::string_view job) {
    std::vector<wire::JobNode *> with;
    std::ranges::copy_if(nodes, std::back_inserter(with),
                         [](const auto *node) { return node->devices() != 0; });
    if (!with.empty() && offer.devices == 0)
        return failure("place the nodes of", std::string(job),
                       fmt::format("host {} gives it no GPU, and {} needs at least one", offer.host,
                                   with.front()->name()),
                       ENODEV);
    const auto count = static_cast<std::uint32_t>(with.size());
    for (std::uint32_t at = 0; at < count; ++at) {
        const auto first = at * offer.devices / count;
        const auto next = std::max((at + 1) * offer.devices / count, first + 1);
        with[at]->set_first_device(first);
        with[at]->set_proxies(std::min(next - first, with[at]->devices()));
    }
    return {};
}

// With one word for all hosts.
std::string without_hosts(const std::string &argument, const std::vector<std::string> &hosts) {
    const auto is_part = [&](std::size_t at) {
        return at < argument.size() && (std::isalnum(static_cast<unsigned char>(argument[at])) != 0 ||
                                        argument[at] == '-' || argument[at] == '_');
    };
    std::string out;
    for (std::size_t at = 0; at < argument.size();) {
        const auto found = std::ranges::find_if(hosts, [&](const auto &host) {
            return !host.empty() && argument.compare(at, host.size(), host) == 0 &&
                   !is_part(at + host.size()) && (at == 0 || !is_part(at - 1));
        });
        if (found == hosts.end()) {
            out += argument[at++];
        } else {
            out += '\0';
            at += found->size();
        }
    }
    return out;
}

} // namespace

std::string job_name(std::uint32_t uid, std::uint32_t vni) { return fmt::format("u{}-j{:06x}", uid, vni); }

std::string network_name_of_step(std::uint32_t uid, std::string_view step) {
    return fmt::format("u{}-s{}", uid, step.substr(0, step.find('.')));
}

std::string job_name_of_step(std::uint32_t uid, std::string_view step) {
    std::string out = fmt::format("u{}-s{}", uid, step);
    std::ranges::replace(out, '.', '-');
    return out;
}

Expected<void> check_job_name(std::string_view name, std::uint32_t uid) {
    const auto own = fmt::format("u{}-j", uid);
    const auto of_step = fmt::format("u{}-s", uid);
    constexpr std::size_t kDigits = 6;
    const auto is_all = [](std::string_view text, std::string_view of) {
        return !text.empty() && text.find_first_not_of(of) == std::string_view::npos;
    };
    bool good = false;
    if (name.starts_with(own)) {
        good = name.size() == own.size() + kDigits && is_all(name.substr(own.size()), "0123456789abcdef");
    } else if (name.starts_with(of_step)) {
        const auto numbers = name.substr(of_step.size());
        const auto middle = std::min(numbers.find('-'), numbers.size());
        const auto step = numbers.substr(std::min(middle + 1, numbers.size()));
        good = numbers.size() <= kStepDigits && is_all(numbers.substr(0, middle), kDecimal) &&
               (step == kBatchStep || is_all(step, kDecimal));
    }
    if (!good)
        return failure("use the job", quote(name),
                       fmt::format("names of uid {}'s jobs are {}HHHHHH, {}JOB-STEP and {}JOB-{}", uid, own,
                                   of_step, of_step, kBatchStep),
                       EINVAL);
    return {};
}

std::uint32_t network_of_step(std::string_view step, std::uint32_t restarts,
                              const std::set<std::uint32_t> &used) {
    const auto job = job_of_step(step);
    if (!job)
        return 0;
    // Agents do not know of each other's. Steps of a run are numbered differently; those that have come from
    // an earlier run keep the number that they had there, and other jobs have the same addresses as well: an
    // unlucky number is another one in the next run.
    constexpr std::uint32_t kRun = 101;
    constexpr std::uint32_t kJob = 389;
    const auto number = step.substr(std::min(step.find('.'), step.size() - 1) + 1);
    std::uint32_t first = network::kNetworksOfAddress - 1; // of the batch script
    std::from_chars(number.data(), number.data() + number.size(), first);
    first += kRun * restarts + kJob * (*job / network::kAddressesOfJobs);
    for (std::uint32_t at = 0; at < network::kNetworksOfAddress; ++at) {
        const auto vni = network::with_addresses_of(*job, first + at);
        if (vni != 0 && !used.contains(vni))
            return vni;
    }
    return 0;
}

Expected<std::vector<wire::JobNode>> plan_nodes(const std::string &job, std::uint32_t vni,
                                                const std::vector<std::string> &hosts,
                                                const std::vector<std::uint32_t> &places) {
    const bool placed =
        places.size() == hosts.size() &&
        std::set<std::uint32_t>(places.begin(), places.end()).size() == places.size() &&
        std::ranges::all_of(places, [](auto one) { return one != 0 && one <= network::kNodeLimit; });
    const auto refuse = [&](std::string why) { return failure("make the job", job, std::move(why), EINVAL); };
    if (hosts.empty() || hosts.size() > network::kNodeLimit)
        return refuse(fmt::format("{} hosts: expected 1 to {}", hosts.size(), network::kNodeLimit));
    std::vector<wire::JobNode> out;
    for (const auto &host : hosts) {
        const auto name = peers::short_name(host);
        if (!peers::is_host_name(name))
            return refuse(fmt::format("{} is no name of a host", quote(host)));
        const auto number = static_cast<std::uint32_t>(out.size() + 1);
        auto &node = out.emplace_back();
        node.set_number(number);
        node.set_host(name);
        node.set_name(node_name(job, number));
        if (placed)
            node.set_place(places[number - 1]);
        node.set_address(address_text(vni, place_of(node)));
    }
    return out;
}

Expected<void> spread_ranks(JobNodes &nodes, std::uint32_t ranks_per_node, std::string_view job) {
    const auto count = static_cast<std::uint32_t>(nodes.size());
    if (ranks_per_node == 0 || ranks_per_node > kRanksOfNodeLimit || ranks_per_node > kRankLimit / count)
        return failure("make the job", std::string(job),
                       fmt::format("{} ranks on each of {} nodes: expected 1 to {}, and {} in all",
                                   ranks_per_node, count, kRanksOfNodeLimit, kRankLimit),
                       EINVAL);
    for (std::uint32_t rank = 0; auto &node : nodes)
        for (std::uint32_t local = 0; local < ranks_per_node; ++local)
            node.add_ranks(rank++);
    return {};
}

std::uint32_t rank_count(const JobNodes &nodes) {
    int out = 0;
    for (const auto &node : nodes)
        out += node.ranks_size();
    return static_cast<std::uint32_t>(out);
}

Expected<void> place_nodes(JobNodes &nodes, const std::vector<Offer> &offers, std::string_view job) {
    std::uint64_t tasks = 0;
    for (const auto &offer : offers)
        tasks += offer.tasks;
    const std::uint64_t ranks = rank_count(nodes);
    if (tasks == 0 || ranks == 0)
        return failure("place the nodes of", std::string(job), "it has no ranks, or its step no tasks",
                       EINVAL);
    std::vector<std::vector<wire::JobNode *>> on(offers.size());
    std::uint64_t before = 0; // ranks
    for (auto &node : nodes) {
        // The task in the middle of its share, as twice its number: whole numbers do.
        const auto middle = (2 * before + static_cast<std::uint64_t>(node.ranks_size())) * tasks / ranks;
        std::size_t at = 0;
        for (std::uint64_t end = offers[0].tasks; at + 1 < offers.size() && middle >= 2 * end && before != 0;)
            end += offers[++at].tasks;
        before += static_cast<std::uint64_t>(node.ranks_size());
        node.set_host(offers[at].host);
        on[at].push_back(&node);
    }
    for (std::size_t at = 0; at < offers.size(); ++at)
        if (auto shared = share_devices(on[at], offers[at], job); !shared)
            return shared;
    return {};
}

void give_requested_devices(JobNodes &nodes, std::string_view gpus, bool script) {
    const auto view = spank::gpu_view_of(gpus);
    std::uint64_t all = 0;
    for (const auto &node : nodes)
        all += node.devices();
    const std::uint64_t ranks = rank_count(nodes);
    if (!view || view->requested <= view->now || all != view->now || ranks == 0)
        return;
    std::uint64_t before = 0;
    for (auto &node : nodes) {
        const auto until = before + static_cast<std::uint64_t>(node.ranks_size());
        const auto share = view->per_task != 0 && !script
                               ? view->per_task * (until - before)
                               : view->requested * until / ranks - view->requested * before / ranks;
        before = until;
        // More than a node can have it would have on several hosts, and there is one.
        if (node.devices() == 0 || share <= node.devices() || share > node::kDeviceLimit)
            continue;
        node.set_proxies(node.devices());
        node.set_devices(static_cast<std::uint32_t>(share));
    }
}

void tell_devices(std::vector<std::string> &environment, std::uint32_t devices, std::uint32_t local,
                  bool script) {
    const auto numbers = [](std::uint64_t first, std::uint64_t count) {
        std::string out;
        for (auto at = first; at < first + count; ++at)
            out += fmt::format("{}{}", at == first ? "" : ",", at);
        return out;
    };
    const auto view = spank::gpu_view_of(value_of(environment, spank::kGpuViewVariable).value_or(""));
    const std::uint64_t own = view && !script ? view->per_task : 0;
    const bool is_bound = own != 0 && own * (local + std::uint64_t{1}) <= devices;
    const auto visible = is_bound ? numbers(own * local, own) : numbers(0, devices);
    const auto all = numbers(0, devices);
    const auto count = std::to_string(devices);
    for (const auto &[name, value] :
         {std::pair<std::string_view, std::string_view>("CUDA_VISIBLE_DEVICES", visible),
          {"GPU_DEVICE_ORDINAL", visible},
          {"SLURM_JOB_GPUS", all},
          {"SLURM_STEP_GPUS", all},
          {"SLURM_GPUS_ON_NODE", count}})
        if (value_of(environment, name))
            set_value(environment, name, value);
}

bool is_same_program(const StepProgram &one, const StepProgram &other) {
    return std::ranges::equal(one.arguments, other.arguments, [&](const auto &left, const auto &right) {
        return without_hosts(left, one.hosts) == without_hosts(right, other.hosts);
    });
}

Expected<std::vector<int>> nodes_of_ranks(const JobNodes &nodes, std::string_view job) {
    constexpr int kNone = -1;
    const auto refuse = [&](std::string why) {
        return failure("place the ranks of", std::string(job), std::move(why), EINVAL);
    };
    const auto count = rank_count(nodes);
    if (count > kRankLimit)
        return refuse(fmt::format("there are {}: at most {}", count, kRankLimit));
    std::vector<int> out(count, kNone);
    for (int at = 0; at < nodes.size(); ++at) {
        const auto &ranks = nodes[at].ranks();
        if (ranks.empty() || std::cmp_greater(ranks.size(), kRanksOfNodeLimit))
            return refuse(fmt::format("{} of them on {}: expected 1 to {}", ranks.size(), nodes[at].host(),
                                      kRanksOfNodeLimit));
        for (const auto rank : ranks) {
            if (rank >= count || out[rank] != kNone)
                return refuse(fmt::format("rank {} of {} on {} is there twice, or none of them", rank, count,
                                          nodes[at].host()));
            out[rank] = at;
        }
    }
    return out;
}

Expected<void> check_record(const wire::JobRecord &record) {
    const auto refuse = [&](std::string why) {
        return failure("use the record of the job", quote(record.name()), std::move(why), EINVAL);
    };
    if (record.nodes().empty() || std::cmp_greater(record.nodes_size(), network::kNodeLimit))
        return refuse(fmt::format("{} nodes: expected 1 to {}", record.nodes_size(), network::kNodeLimit));
    if (record.ranks() > kRankLimit)
        return refuse(fmt::format("{} ranks: at most {}", record.ranks(), kRankLimit));
    // Where the ranks of a step of Slurm's are is not known before its hosts have told.
    const bool placed = rank_count(record.nodes()) != 0;
    if (placed) {
        auto nodes = nodes_of_ranks(record.nodes(), record.name());
        if (!nodes)
            return propagate(nodes);
        if (nodes->size() != record.ranks())
            return refuse(
                fmt::format("its nodes have {} ranks, and it has {}", nodes->size(), record.ranks()));
    } else if (record.state() == wire::JobRecord::STARTING || record.state() == wire::JobRecord::RUNNING) {
        return refuse("its ranks run, and none of its nodes has one");
    }
    std::vector<bool> ended(record.ranks());
    for (const auto &end : record.ends()) {
        if (end.rank() >= ended.size() || ended[end.rank()])
            return refuse(fmt::format("the end of rank {} of {} is there twice, or of none of them",
                                      end.rank(), record.ranks()));
        ended[end.rank()] = true;
    }
    return {};
}

Expected<void> check_nodes(const wire::ConnectJob &request, std::string_view job, std::uint32_t vni) {
    const auto refuse = [&](std::string why) {
        return failure("make nodes of the job", std::string(job), std::move(why), EINVAL);
    };
    if (request.nodes().empty() || std::cmp_greater(request.nodes().size(), network::kNodeLimit))
        return refuse(fmt::format("{} nodes: expected 1 to {}", request.nodes().size(), network::kNodeLimit));
    std::set<std::uint32_t> places;
    for (std::uint32_t number = 1; const auto &node : request.nodes()) {
        if (node.number() != number || node.name() != node_name(job, number) ||
            place_of(node) > network::kNodeLimit || !places.insert(place_of(node)).second ||
            node.address() != address_text(vni, place_of(node)) || !peers::is_host_name(node.host()) ||
            (!node.hostname().empty() && !peers::is_host_name(node.hostname())))
            return refuse(fmt::format("its node {} is not as it must be", number));
        ++number;
    }
    if (auto placed = nodes_of_ranks(request.nodes(), job); !placed)
        return propagate(placed);
    return {};
}

Expected<void> check_start(const wire::StartJob &request) {
    const auto has_zero = [](const std::string &text) { return text.find('\0') != std::string::npos; };
    const auto &program = request.program();
    if (std::ranges::any_of(program.arguments(), has_zero) ||
        std::ranges::any_of(program.environment(), has_zero) || has_zero(program.directory()))
        return failure("start", "a job", "there are zeros in its program's texts", EINVAL);
    return {}; // the rest is checked where it is started
}

node::Program program_of(const wire::StartJob &start, const wire::ConnectJob &connect,
                         const wire::JobNode &node, std::uint32_t local) {
    const auto all = std::to_string(rank_count(connect.nodes()));
    const auto rank = std::to_string(node.ranks(static_cast<int>(local)));
    const std::array<std::pair<std::string_view, std::string>, 11> known{{
        {"RANK", rank},
        {"WORLD_SIZE", all},
        {"LOCAL_RANK", std::to_string(local)},
        {"LOCAL_WORLD_SIZE", std::to_string(node.ranks_size())},
        {"MASTER_ADDR", connect.nodes(0).name()},
        {"MASTER_PORT", std::to_string(kMasterPort)},
        {"SLURM_PROCID", rank},
        {"SLURM_NTASKS", all},
        {"SLURM_LOCALID", std::to_string(local)},
        {"SLURM_NODEID", std::to_string(node.number() - 1)},
        {"SLURM_NNODES", std::to_string(connect.nodes().size())},
    }};
    const auto &program = start.program();
    node::Program out;
    out.arguments = {program.arguments().begin(), program.arguments().end()};
    for (const auto &entry : program.environment())
        if (std::ranges::find(known, name_of(entry), [](const auto &one) { return one.first; }) ==
            known.end())
            out.environment.push_back(entry);
    for (const auto &[name, value] : known)
        out.environment.push_back(fmt::format("{}={}", name, value));
    out.directory = program.directory();
    for (const auto &limit : program.limits())
        out.limits.push_back({.resource = limit.resource(), .soft = limit.soft(), .hard = limit.hard()});
    out.mask = program.mask();
    out.stdio = node::Stdio::kept;
    return out;
}

wire::Program message_of(const node::Program &program) {
    wire::Program out;
    for (const auto &argument : program.arguments)
        out.add_arguments(argument);
    for (const auto &entry : program.environment)
        out.add_environment(entry);
    out.set_directory(program.directory);
    for (const auto &one : program.limits) {
        auto *const limit = out.add_limits();
        limit->set_resource(one.resource);
        limit->set_soft(one.soft);
        limit->set_hard(one.hard);
    }
    out.set_mask(program.mask);
    return out;
}

std::int32_t exit_status(std::int32_t wait_status) {
    constexpr std::int32_t kSignalBase = 128;
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : kSignalBase + WTERMSIG(wait_status);
}

} // namespace singularity::agent
