// SPDX-License-Identifier: GPL-2.0-or-later
// A job that comes from the store: what it was, and where it is to run now.
#include "agent/log.hpp"
#include "common/text.hpp"
#include "job_files.hpp"
#include "job_keeper.hpp"
#include "job_plan.hpp"
#include "peers/handshake.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace singularity::agent {

namespace {

namespace wire = peers::wire;

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

Expected<wire::JobRecord> record_in(const WorkFoundJob &found) {
    wire::JobRecord record;
    const auto &bytes = found.record;
    if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || record.nodes().empty())
        return failure("restore", found.checkpoint, "its record of the job is of another release", EPROTO);
    if (auto checked = check_job_name(record.name(), record.user().uid()); !checked)
        return propagate(checked);
    return record;
}

// Slurm gives numbers anew, where slurmctld has lost its state or has come to the last one. Where an identity
// is missing, only an earlier run can have been of the same job, or this one where the script names what it
// was.
bool is_of_same_job(const wire::JobRecord &record, const JobKeeper::JobRequest &step) {
    return record.identity().empty() || step.identity.empty()
               ? record.restarts() < step.restarts + (step.goes_on ? 1 : 0)
               : record.identity() == step.identity;
}

} // namespace

Expected<JobKeeper::Restoring> JobKeeper::prepare_restore(const RestorePlan &plan) {
    auto read = record_in(*plan.found);
    if (!read)
        return propagate(read);
    auto &record = *read;
    const auto refuse = [&](std::string why, int code) {
        return failure("restore", record.name(), std::move(why), code);
    };
    node::Spec as;
    as.name = record.name();
    as.uid = record.user().uid();
    as.gid = record.user().gid();
    as.groups.assign(record.user().groups().begin(), record.user().groups().end());
    if (auto may = plan.may_make(as); !may)
        return propagate(may);
    if (!record.step().empty())
        return refuse(
            fmt::format(
                "it is step {} of Slurm's: it goes on when its job is started again (scontrol requeue)",
                record.step()),
            EINVAL);
    for (const auto &node : record.nodes())
        if (plan.request->proxies > node.devices())
            return refuse(fmt::format("its node {} has {} devices: {} are more", node.name(), node.devices(),
                                      plan.request->proxies),
                          EINVAL);
    if (auto placed = place(record, plan.request->hosts); !placed)
        return propagate(placed);
    if (auto replaced = replace_ended(record.name()); !replaced)
        return propagate(replaced);
    if (auto room = room_for_one_more(plan.uid); !room)
        return propagate(room);
    if (auto room = room_for_ranks(record); !room)
        return propagate(room);
    record.set_cgroups(plan.cgroups);
    record.set_tied(record.tied() && !plan.request->detach);
    for (auto &node : *record.mutable_nodes())
        node.set_proxies(plan.request->proxies);
    return restoring(std::move(record), *plan.found);
}

Expected<void> JobKeeper::replace_ended(const std::string &name) {
    const auto before = find(name);
    if (!before)
        return {};
    if (before->record().state() != wire::JobRecord::ENDED)
        return failure("begin the job", name, fmt::format("it is {}", to_string(before->record().state())),
                       EEXIST);
    before->destroy(std::nullopt);
    jobs_.erase(name);
    return {};
}

Expected<JobKeeper::Restoring> JobKeeper::restoring(wire::JobRecord record, const WorkFoundJob &found) const {
    record.set_state(wire::JobRecord::REACHING);
    record.clear_trouble();
    record.clear_saving();
    record.clear_published();
    record.clear_told();
    record.clear_unsavable();
    record.clear_unsavable_by_check();
    record.set_made(std::time(nullptr));
    record.set_checkpoint(found.checkpoint);
    record.set_periodic(found.periodic ? found.checkpoint : std::string());
    // What it had come to is known already, or will be told by its nodes.
    if (!has_ended(record)) {
        record.clear_ends();
        record.clear_status();
        record.set_restore(found.checkpoint);
    }
    const auto directory = job_setting_.jobs / record.name();
    if (auto made = make_job_directory(directory); !made)
        return propagate(made);
    return Restoring{.record = std::move(record), .directory = directory};
}

Expected<JobKeeper::Restoring> JobKeeper::prepare_restore(const JobRequest &step, const WorkFoundJob &found) {
    auto read = record_in(found);
    if (!read)
        return propagate(read);
    auto &record = *read;
    const auto stale = [&](std::string why) {
        return failure("go on with the step",
                       fmt::format("{} as it was saved in {}", step.step, found.checkpoint), std::move(why),
                       ESTALE);
    };
    const auto &user = record.user();
    if (record.name() != step.name || record.cluster() != step.cluster || user.uid() != step.uid ||
        user.gid() != step.gid || !is_of_same_job(record, step))
        return failure("go on with the step",
                       fmt::format("{} as it was saved in {}", step.step, found.checkpoint),
                       "that is of another job", ENOENT);
    if (record.ranks() != step.ranks)
        return stale(fmt::format("that has {} tasks, and this {}", record.ranks(), step.ranks));
    StepProgram before{
        .arguments = {record.program().arguments().begin(), record.program().arguments().end()}, .hosts = {}};
    for (const auto &node : record.nodes())
        before.hosts.push_back(node.hostname());
    const auto &now = step.request.program.arguments;
    if (!is_same_program(before, {.arguments = now, .hosts = step.request.hosts}))
        return stale(fmt::format("that ran {}, and this is {}",
                                 quote(fmt::format("{}", fmt::join(before.arguments, " "))),
                                 quote(fmt::format("{}", fmt::join(now, " ")))));
    if (auto replaced = replace_ended(record.name()); !replaced)
        return propagate(replaced);
    if (auto room = room_for_one_more(step.uid); !room)
        return propagate(room);
    if (auto room = room_for_ranks(record); !room)
        return propagate(room);
    record.set_step(step.step); // by which Slurm knows it now
    record.set_one_host(step.one_host);
    record.clear_hosts();
    for (const auto &host : step.request.hosts)
        record.add_hosts(peers::short_name(host));
    const auto hosts = static_cast<int>(std::min<std::size_t>(record.hosts_size(), record.nodes_size()));
    for (int at = 0; at < record.nodes_size(); ++at) // until its hosts have told what they have
        record.mutable_nodes(at)->set_host(record.hosts(at * hosts / record.nodes_size()));
    record.set_cgroups(step.cgroups);
    // Each was a run. Those that slurmctld has forgotten are not counted.
    record.set_tries(std::max(step.restarts, record.restarts() + 1) - record.restarts());
    record.set_restarts(step.restarts);
    record.set_every(step.request.every);
    record.set_store(step.store); // where it has been found
    return restoring(std::move(record), found);
}

void JobKeeper::give_up(const std::string &name) {
    if (auto removed = remove_job_directory(job_setting_.jobs / name); !removed)
        kLog.error("{}", removed.error().message());
}

} // namespace singularity::agent
