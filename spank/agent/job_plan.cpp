// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_plan.hpp"

#include "common/text.hpp"
#include "network/plan.hpp"
#include "node/record.hpp"
#include "peers/handshake.hpp"
#include "peers/tcp.hpp"

#include <algorithm>
#include <array>
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

} // namespace

std::string job_name(std::uint32_t uid, std::uint32_t vni) { return fmt::format("u{}-j{:06x}", uid, vni); }

Expected<void> check_job_name(std::string_view name, std::uint32_t uid) {
    const auto prefix = fmt::format("u{}-j", uid);
    constexpr std::size_t kDigits = 6;
    const auto digits = name.starts_with(prefix) ? name.substr(prefix.size()) : std::string_view();
    if (digits.size() != kDigits || digits.find_first_not_of("0123456789abcdef") != std::string_view::npos)
        return failure("use the job", quote(name),
                       fmt::format("names of uid {}'s jobs are {}HHHHHH", uid, prefix), EINVAL);
    return {};
}

Expected<std::vector<wire::JobNode>> plan_nodes(const std::string &job, std::uint32_t vni,
                                                const std::vector<std::string> &hosts) {
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
        node.set_address(address_text(vni, number));
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

Expected<void> check_nodes(const wire::ConnectJob &request, std::string_view job, std::uint32_t vni) {
    const auto refuse = [&](std::string why) {
        return failure("make nodes of the job", std::string(job), std::move(why), EINVAL);
    };
    if (request.nodes().empty() || std::cmp_greater(request.nodes().size(), network::kNodeLimit))
        return refuse(fmt::format("{} nodes: expected 1 to {}", request.nodes().size(), network::kNodeLimit));
    for (std::uint32_t number = 1; const auto &node : request.nodes()) {
        if (node.number() != number || node.name() != node_name(job, number) ||
            node.address() != address_text(vni, number) || !peers::is_host_name(node.host()) ||
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
