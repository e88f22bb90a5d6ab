// SPDX-License-Identifier: GPL-2.0-or-later
// A node that a client wants from a checkpoint: a worker finds out which it is.
#include "agent/limits/budget.hpp"
#include "agent/log.hpp"
#include "common/proc.hpp"
#include "common/text.hpp"
#include "server.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

// /proc/PID/cgroup of who asks for a job is only known on his own host.
Expected<std::string> own_or(const std::string &cgroups) {
    return cgroups.empty() ? proc::read("/proc/self/cgroup") : Expected<std::string>(cgroups);
}

} // namespace

void Server::restore(const std::shared_ptr<Client> &client, const Restore &request, Streams given,
                     const Responder &responder) {
    if (given.size() != 0 && given.size() != 3)
        return responder.refuse({"restore", quote(request.what),
                                 fmt::format("{} descriptors came with it", given.size()), EINVAL});
    const auto uid = client->credentials.uid();
    const auto of_same = std::ranges::count_if(findings_, [&](const auto &one) {
        return one->client && !one->only_looks && one->client->credentials.uid() == uid;
    });
    if (auto why = budgets().refusal(Budget::restores, uid, static_cast<std::uint64_t>(of_same)))
        return responder.refuse({"restore", quote(request.what), *why, EDQUOT});
    auto cgroups = client->credentials.cgroups();
    if (!cgroups)
        return responder.refuse(cgroups.error());
    if (auto room = Worker::room_for_one_more(uid, "restore", quote(request.what)); !room)
        return responder.refuse(room.error());
    auto worker = Worker::start(options_.places.libraries, uid,
                                WorkRestore{.what = request.what,
                                            .node = {},
                                            .uid = client->credentials.uid(),
                                            .cgroups = *cgroups,
                                            .store = {}});
    if (!worker)
        return responder.refuse(worker.error());
    findings_.push_back(std::make_unique<Finding>(Finding{.worker = std::move(*worker),
                                                          .client = client,
                                                          .responder = responder,
                                                          .request = request,
                                                          .cgroups = std::move(*cgroups),
                                                          .given = std::move(given),
                                                          .step = {},
                                                          .of_job = {},
                                                          .job = {},
                                                          .only_looks = {}}));
}

void Server::restore_node(Restoring restoring, const Responder &responder) {
    auto cgroups = own_or(restoring.cgroups);
    if (!cgroups)
        return responder.refuse(cgroups.error());
    auto worker = Worker::start(options_.places.libraries, restoring.spec.uid,
                                WorkRestore{.what = restoring.checkpoint,
                                            .node = restoring.spec.name,
                                            .uid = restoring.spec.uid,
                                            .cgroups = *cgroups,
                                            .store = restoring.store});
    if (!worker)
        return responder.refuse(worker.error());
    Restore request;
    request.what = restoring.checkpoint;
    request.proxies = restoring.share.count;
    findings_.push_back(std::make_unique<Finding>(Finding{.worker = std::move(*worker),
                                                          .client = {},
                                                          .responder = responder,
                                                          .request = std::move(request),
                                                          .cgroups = std::move(*cgroups),
                                                          .given = {},
                                                          .step = {},
                                                          .of_job = std::move(restoring),
                                                          .job = {},
                                                          .only_looks = {}}));
}

void Server::look_for_saved(const std::string &job, const std::shared_ptr<Client> &client,
                            const std::string &cgroups, const std::string &store,
                            std::function<void(const Expected<WorkFoundJob> &)> then) {
    Restore request;
    request.what = job;
    // Each connection of a task's may have one.
    if (auto room = Worker::room_for_one_more(client->credentials.uid(), "look for", quote(job)); !room)
        return then(propagate(room));
    auto worker = Worker::start(
        options_.places.libraries, client->credentials.uid(),
        WorkRestore{
            .what = job, .node = {}, .uid = client->credentials.uid(), .cgroups = cgroups, .store = store});
    if (!worker)
        return then(propagate(worker));
    findings_.push_back(std::make_unique<Finding>(
        Finding{.worker = std::move(*worker),
                .client = client,
                .responder = {.token = 1,
                              .answer = [](const std::string & /*packet*/, std::span<const int> /*fds*/) {}},
                .request = std::move(request),
                .cgroups = cgroups,
                .given = {},
                .step = {},
                .of_job = {},
                .job = {},
                .only_looks = std::move(then)}));
}

void Server::give_up(Finding &finding, const Error &error) {
    finding.over = true;
    if (finding.only_looks)
        return finding.only_looks(std::unexpected(error));
    // Of a job's node its coordinator counts it. Where there is none that fits, nothing was to be restored.
    if (!finding.of_job && error.code != ENOENT && error.code != ESTALE)
        counters().failed(Work::restore);
    if (const auto job = std::exchange(finding.job, std::nullopt))
        jobs_->give_up(job->record.name());
    if (finding.step) {
        // Its death says nothing of the checkpoint.
        if (error.code == ECHILD && finding.step->looks_again())
            if (auto again = find_saved(finding.step); again)
                return;
        return find_no_saved(*finding.step, error);
    }
    finding.responder.refuse(error);
}

void Server::read_finding(Finding &finding) {
    node::Packet packet;
    while (!finding.over) {
        const auto received = finding.worker.receive(packet);
        if (received == node::Received::nothing)
            return;
        if (received != node::Received::packet) {
            ++counters().workers_died;
            return give_up(finding, {"restore", quote(finding.request.what),
                                     "the process that looks for the checkpoint has died", ECHILD});
        }
        if (const auto progress = node::decode<Progress>(packet.bytes)) {
            if (finding.client)
                finding.responder.tell(*progress);
        } else if (const auto failed = node::decode<WorkFailed>(packet.bytes)) {
            give_up(finding, {failed->error.doing, failed->error.on, failed->error.why, failed->error.code});
        } else if (auto found = node::decode<WorkFound>(packet.bytes)) {
            if (auto restored = restore_found(finding, std::move(*found)); !restored)
                give_up(finding, restored.error());
            finding.over = true;
        } else if (const auto job = node::decode<WorkFoundJob>(packet.bytes); job && finding.only_looks) {
            finding.over = true;
            finding.only_looks(*job);
        } else if (job) {
            if (auto prepared = restore_found_job(finding, *job); !prepared)
                give_up(finding, prepared.error());
        } else if (node::decode<WorkFinished>(packet.bytes) && finding.job) {
            if (auto begun = begin_found_job(finding); !begun)
                give_up(finding, begun.error());
            finding.over = true;
        } else {
            give_up(finding,
                    {"restore", quote(finding.request.what), "its worker says something else", EPROTO});
        }
    }
}

Expected<void> Server::restore_found_job(Finding &finding, const WorkFoundJob &found) {
    if ((!finding.client && !finding.step) || finding.job)
        return failure("restore", found.checkpoint, "it is not the checkpoint of one virtual node", EPROTO);
    const auto prepare = [&] {
        if (finding.step)
            return jobs_->prepare_restore(request_of_step(*finding.step), found);
        const auto &credentials = finding.client->credentials;
        return jobs_->prepare_restore(
            {.request = &finding.request,
             .found = &found,
             .cgroups = finding.cgroups,
             .uid = credentials.uid(),
             .may_make = [&](const node::Spec &spec) {
                 auto may = credentials.may_make(spec);
                 return may ? credentials.may_run_on_hosts(options_.agents.run_without_slurm) : may;
             }});
    };
    auto prepared = prepare();
    if (!prepared)
        return propagate(prepared);
    finding.job = std::move(*prepared);
    return finding.worker.tell(WorkOutputs{.directory = finding.job->directory});
}

Expected<void> Server::begin_found_job(Finding &finding) {
    auto found = std::exchange(finding.job, std::nullopt);
    const bool tied = found->record.tied();
    auto job = jobs_->begin(std::move(found->record));
    if (!job)
        return propagate(job);
    if (finding.step)
        return {};
    if (tied)
        job_ties_[(*job)->record().name()] = {.owner = finding.client, .patience = {}};
    (*job)->tell_when_restored(finding.responder);
    return {};
}

Expected<void> Server::check_found(const Finding &finding, const WorkFound &found) const {
    const node::Spec &spec = found.record.spec;
    const auto refuse = [&](std::string why, int code) {
        return failure("restore", quote(spec.name), std::move(why), code);
    };
    if (auto checked = node::check_spec(spec); !checked)
        return checked;
    // First: who may not have it hears nothing else of it.
    if (finding.client) {
        node::Spec asked = spec;
        asked.shown.clear(); // an agent chose that when the node was made, and the store is root's alone
        if (auto may = finding.client->credentials.may_make(asked); !may)
            return may;
    }
    if (spec.image.any() && !options_.containers.enabled)
        return refuse("this cluster has no images (containers.enabled in singularity.yaml)", EPERM);
    if (nodes_.contains(spec.name))
        return refuse("there is a virtual node of that name", EEXIST);
    if (finding.request.proxies > spec.devices)
        return refuse(
            fmt::format("it has {} devices: {} proxies are more", spec.devices, finding.request.proxies),
            EINVAL);
    if (const auto &wanted = finding.of_job) {
        if (spec.name != wanted->spec.name || spec.job != wanted->spec.job || spec.uid != wanted->spec.uid ||
            spec.gid != wanted->spec.gid || spec.groups != wanted->spec.groups ||
            spec.address != wanted->spec.address)
            return refuse("it is not the node that the job has there", EPROTO);
        return room_for_one_more(spec.uid == 0, spec);
    }
    const auto &credentials = finding.client->credentials;
    if (auto may = credentials.may_run_here(options_.agents.run_without_slurm, finding.cgroups); !may)
        return may;
    if (auto room = room_for_one_more(credentials.is_root(), spec); !room)
        return room;
    if (spec.tied && finding.given.size() == 0 && !found.record.given.empty())
        return refuse("its program runs in the foreground: restore it without --detach", EINVAL);
    return {};
}

Expected<void> Server::restore_found(Finding &finding, WorkFound &&found) {
    if (auto checked = check_found(finding, found); !checked)
        return checked;
    node::Spec &spec = found.record.spec;
    // A program that nobody has waited for does not begin to be waited for.
    spec.tied = spec.tied && finding.given.size() != 0;
    GivenTasks given;
    ProxyShare share{.count = finding.request.proxies, .first = 0};
    if (finding.of_job) {
        auto taken = finding.of_job->on_found(found.ranks);
        if (!taken)
            return propagate(taken);
        given = std::move(*taken);
        share = finding.of_job->share;
    } else if (finding.given.size() != 0) {
        given.emplace(0, GivenTask{.streams = std::move(finding.given), .cpus = {}});
    }
    if (share.count == 0)
        share.count = spec.devices;
    found.record.checkpoint = found.checkpoint;
    found.record.periodic = found.periodic ? found.checkpoint : std::string();
    found.record.in_doubt = false;
    spec.run = finding.of_job ? finding.of_job->spec.run : 0;
    if (auto given_again = local_trees_.give_again(spec); !given_again)
        return given_again;
    const node::Room room(options_.places.state, spec.name);
    const std::string name = spec.name;
    auto prepared = room.prepare(spec);
    auto restored =
        prepared ? LiveNode::restore(
                       {.record = std::move(found.record),
                        .room = room,
                        .cgroups = finding.cgroups,
                        .share = share,
                        .rendezvous = finding.of_job ? std::move(finding.of_job->rendezvous) : std::nullopt,
                        .worker = std::move(finding.worker),
                        .given = std::move(given),
                        .on_held = finding.of_job ? std::move(finding.of_job->on_held) : LiveNode::OnHeld(),
                        .network = finding.of_job ? std::move(finding.of_job->home) : nullptr},
                       options_.places, finding.responder)
                 : Expected<LiveNode>(std::unexpected(prepared.error()));
    if (!restored) {
        if (auto removed = room.remove(); !removed)
            kLog.error("{}", removed.error().message());
        return propagate(restored);
    }
    Held held{.node = std::make_unique<LiveNode>(std::move(*restored)),
              .tied_to = {},
              .tie_patience = {},
              .woken = true};
    if (held.node->record().spec.tied)
        held.tied_to = finding.client;
    nodes_.emplace(name, std::move(held));
    return {};
}

} // namespace singularity::agent
