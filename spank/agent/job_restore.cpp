// SPDX-License-Identifier: GPL-2.0-or-later
// A job that comes from the store: what it was, and where it is to run now.
#include "common/log.hpp"
#include "common/text.hpp"
#include "job_files.hpp"
#include "job_keeper.hpp"
#include "job_plan.hpp"
#include "peers/handshake.hpp"

#include <ctime>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

namespace wire = peers::wire;

constexpr log::Channel kLog("agent");

// Neighbours stay neighbours: the first share of the nodes on the first host, and so on.
Expected<void> place(wire::JobRecord &record, const std::vector<std::string> &hosts) {
    const auto nodes = static_cast<std::size_t>(record.nodes().size());
    const auto refuse = [&](std::string why) {
        return failure("restore", record.name(), std::move(why), EINVAL);
    };
    if (hosts.size() > nodes)
        return refuse(fmt::format("it has {} nodes: {} hosts are more", nodes, hosts.size()));
    for (std::size_t at = 0; at < nodes; ++at) {
        auto &node = *record.mutable_nodes(static_cast<int>(at));
        node.clear_host_address();
        if (hosts.empty())
            continue;
        const auto name = peers::short_name(hosts[at * hosts.size() / nodes]);
        if (!peers::is_host_name(name))
            return refuse(fmt::format("{} is no name of a host", quote(name)));
        node.set_host(name);
    }
    return {};
}

} // namespace

Expected<JobKeeper::Restoring> JobKeeper::prepare_restore(const RestoreWish &wish) {
    wire::JobRecord record;
    const auto &bytes = wish.found->record;
    if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || record.nodes().empty())
        return failure("restore", wish.found->checkpoint, "its record of the job is of another release",
                       EPROTO);
    const auto refuse = [&](std::string why, int code) {
        return failure("restore", record.name(), std::move(why), code);
    };
    if (auto checked = check_job_name(record.name(), record.user().uid()); !checked)
        return propagate(checked);
    node::Spec as;
    as.name = record.name();
    as.uid = record.user().uid();
    as.gid = record.user().gid();
    as.groups.assign(record.user().groups().begin(), record.user().groups().end());
    if (auto may = wish.may_make(as); !may)
        return propagate(may);
    for (const auto &node : record.nodes())
        if (wish.request->proxies > node.devices())
            return refuse(fmt::format("its node {} has {} devices: {} are more", node.name(), node.devices(),
                                      wish.request->proxies),
                          EINVAL);
    if (auto placed = place(record, wish.request->hosts); !placed)
        return propagate(placed);
    // What is left of it here is in the checkpoint as well.
    if (const auto before = find(record.name())) {
        if (before->record().state() != wire::JobRecord::ENDED)
            return refuse(fmt::format("it is {}", words(before->record().state())), EEXIST);
        before->destroy(std::nullopt);
        jobs_.erase(record.name());
    }
    if (auto room = room_for_one_more(wish.uid); !room)
        return propagate(room);
    record.set_state(wire::JobRecord::REACHING);
    record.clear_ends();
    record.clear_trouble();
    record.clear_status();
    record.clear_saving();
    record.set_made(std::time(nullptr));
    record.set_cgroups(wish.cgroups);
    record.set_tied(record.tied() && !wish.request->detach);
    record.set_checkpoint(wish.found->checkpoint);
    record.set_periodic(wish.found->periodic ? wish.found->checkpoint : std::string());
    record.set_restore(wish.found->checkpoint);
    record.set_proxies(wish.request->proxies);
    const auto directory = job_setting_.jobs / record.name();
    if (auto made = make_job_directory(directory); !made)
        return propagate(made);
    return Restoring{.record = std::move(record), .directory = directory};
}

void JobKeeper::give_up(const std::string &name) {
    if (auto removed = remove_job_directory(job_setting_.jobs / name); !removed)
        kLog.error("{}", removed.error().message());
}

} // namespace singularity::agent
