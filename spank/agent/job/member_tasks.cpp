// SPDX-License-Identifier: GPL-2.0-or-later
// Which of a step's tasks on this host stand for which ranks, where these ranks' device proxies belong, and
// where they meet.
#include "agent/slurm/slurm_cgroup.hpp"
#include "member.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace singularity::agent {

namespace {

namespace wire = peers::wire;

} // namespace

// Nodes may be on hosts where Slurm has put other tasks than they have ranks.
void Member::bind_tasks() {
    if (!step_)
        return;
    std::vector<std::uint32_t> ranks;
    for (const auto *const one : own_nodes())
        ranks.insert(ranks.end(), one->ranks().begin(), one->ranks().end());
    task_of_rank_ = pair_ranks(ranks, step_->tasks());
    step_->bind(task_of_rank_);
}

// A proxy is where the rank is that its first device is for: the devices of a node are for its ranks in their
// order, as many for each.
ProxyShare Member::share_of(const wire::JobNode &one) const {
    ProxyShare out{.count = one.proxies(), .first = one.first_device(), .neighbours = neighbours_};
    // Most scripts leave the devices to their steps.
    out.with_first_client = is_script(record_.prepare().step());
    if (!step_ || one.ranks().empty() || one.devices() == 0)
        return out;
    const auto ranks = static_cast<std::uint64_t>(one.ranks_size());
    const std::uint64_t count = one.proxies() == 0 ? one.devices() : one.proxies();
    for (std::uint64_t number = 0; number < count; ++number) {
        const auto rank = one.ranks(static_cast<int>(std::min(number * ranks / one.devices(), ranks - 1)));
        out.cgroups.push_back(step_->cgroups_of(task_of_rank_.at(rank)));
    }
    return out;
}

std::optional<Rendezvous> Member::rendezvous_of(const wire::JobNode &one) const {
    const auto &connect = record_.connect();
    RendezvousKey key{};
    if (one.devices() == 0 || connect.meeting_key().size() != key.size())
        return std::nullopt;
    std::memcpy(key.data(), connect.meeting_key().data(), key.size());
    return Rendezvous{.place = connect.rendezvous(),
                      .address = tcp_address(record_.prepare().local(), 0),
                      .host = setting_->host,
                      .key = key,
                      .socket = one.number() == 1 ? rendezvous_ : nullptr};
}

} // namespace singularity::agent
