// SPDX-License-Identifier: GPL-2.0-or-later
// What a client may ask of jobs, and nodes that jobs ask for.
#include "agent/log.hpp"
#include "common/proc.hpp"
#include "common/text.hpp"
#include "network/plan.hpp"
#include "peers/tcp.hpp"
#include "server.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

} // namespace

Expected<void> Server::open_jobs() {
    auto opened = JobKeeper::open(
        {.libraries = options_.places.libraries,
         .place = options_.places.state.parent_path(),
         .host = options_.host,
         .agents = options_.agents,
         .network = options_.network,
         .check_after = options_.elastic.check_after,
         .tell_slurm =
             [this](const OwnedJob &job, std::string command, std::vector<std::string> words) {
                 slurm_watch_.tell(job, std::move(command), std::move(words));
             }},
        *this);
    if (!opened)
        return propagate(opened);
    jobs_ = std::move(*opened);
    return {};
}

void Server::make_node(node::Spec spec, std::string cgroups, ProxyShare share,
                       std::optional<Rendezvous> rendezvous, Home home, const Responder &responder) {
    if (cgroups.empty()) {
        auto own = proc::read("/proc/self/cgroup");
        if (!own)
            return responder.refuse(own.error());
        cgroups = std::move(*own);
    }
    if (auto room = room_for_one_more(spec.uid == 0, spec); !room)
        return responder.refuse(room.error());
    make_checked(std::move(spec), std::move(cgroups), share, std::move(rendezvous), {}, std::move(home),
                 responder);
}

LiveNode *Server::look_at_node(const std::string &name) {
    const auto found = nodes_.find(name);
    if (found == nodes_.end() || found->second.node->state() == LiveNode::State::gone)
        return nullptr;
    return found->second.node.get();
}

LiveNode *Server::find_node(const std::string &name) {
    LiveNode *const node = look_at_node(name);
    if (node != nullptr)
        nodes_.at(name).woken = true;
    return node;
}

std::shared_ptr<Job> Server::find_job(const Client &client, const std::string &name,
                                      const Responder &responder) {
    auto job = jobs_->find(name);
    if (!job && jobs_->job_waits(name))
        responder.refuse({"find the job", quote(name),
                          "it could not be looked at yet since this host's agent was started: try again",
                          EAGAIN});
    else if (!job)
        responder.refuse({"find the job", quote(name), "this agent coordinates none of that name", ENOENT});
    else if (!client.credentials.is_root() && client.credentials.uid() != job->record().user().uid()) {
        responder.refuse({"use the job", quote(name), "it belongs to another user", EPERM});
        return nullptr;
    }
    return job;
}

void Server::run_job(const std::shared_ptr<Client> &client, RunJob request, const Responder &responder) {
    auto cgroups = client->credentials.cgroups();
    if (!cgroups)
        return responder.refuse(cgroups.error());
    const bool here = std::ranges::all_of(
        request.hosts, [&](const auto &host) { return peers::short_name(host) == options_.host; });
    const auto &credentials = client->credentials;
    const bool without_slurm = options_.agents.run_without_slurm;
    if (auto may = here ? credentials.may_run_here(without_slurm, *cgroups)
                        : credentials.may_run_on_hosts(without_slurm);
        !may)
        return responder.refuse(may.error());
    if (!request.publish.empty())
        if (auto checked = network::check({.node = 1,
                                           .ports = request.publish,
                                           .range = {.first = kLeastPublished, .last = UINT16_MAX},
                                           .owner = {}});
            !checked)
            return responder.refuse(checked.error());
    const bool tied = request.tied;
    const auto &groups = client->credentials.groups();
    auto job = jobs_->run({.request = std::move(request),
                           .uid = client->credentials.uid(),
                           .gid = client->credentials.gid(),
                           .groups = {groups.begin(), groups.end()},
                           .cgroups = std::move(*cgroups),
                           .step = {},
                           .places = {},
                           .name = {},
                           .ranks = 0,
                           .cluster = {},
                           .restarts = 0,
                           .identity = {},
                           .of_script = false,
                           .elastic = {},
                           .gpus = {},
                           .store = {}});
    if (!job)
        return responder.refuse(job.error());
    if (tied)
        job_ties_[(*job)->record().name()] = {.owner = client, .patience = {}};
    responder.tell(JobMade{.job = (*job)->record().name(), .ranks = (*job)->ranks()});
}

void Server::list_jobs(const Client &client, const Responder &responder) const {
    Jobs out;
    std::size_t size = 0;
    for (const auto &[name, job] : jobs_->all()) {
        if (!client.credentials.is_root() && client.credentials.uid() != job->record().user().uid())
            continue;
        auto line = job->line();
        node::Writer measure;
        measure(line);
        size += measure.take().size();
        if (size > node::kDatagramLimit / 2) {
            out.complete = false;
            break;
        }
        out.jobs.push_back(std::move(line));
    }
    responder.tell(out);
}

bool Server::handle_job(const std::shared_ptr<Client> &client, const node::Packet &packet, Message type,
                        const Responder &responder) {
    const auto about_job = [&]<class Body>(void (*act)(Server &, const std::shared_ptr<Client> &, Job &,
                                                       Body &&, const Responder &)) {
        auto body = node::decode<Body>(packet.bytes);
        if (!body)
            return false;
        if (const auto job = find_job(*client, body->job, responder))
            act(*this, client, *job, std::move(*body), responder);
        return true;
    };
    using Who = const std::shared_ptr<Client> &;
    switch (type) {
    case Message::run_job: {
        auto body = node::decode<RunJob>(packet.bytes);
        if (body)
            run_job(client, std::move(*body), responder);
        return body.has_value();
    }
    case Message::list_jobs:
        if (!node::decode<ListJobs>(packet.bytes))
            return false;
        list_jobs(*client, responder);
        return true;
    case Message::follow_job:
        return about_job(+[](Server &self, Who from, Job &job, FollowJob &&body, const Responder &to) {
            const auto tie = self.job_ties_.find(job.record().name());
            const bool owner = tie != self.job_ties_.end() && tie->second.owner.lock() == from;
            job.follow(std::move(body), owner && body.only < 0, to);
        });
    case Message::signal_job:
        return about_job(
            +[](Server & /*self*/, Who /*from*/, Job &job, SignalJob &&body, const Responder &to) {
                if (body.number < 0 || body.number >= NSIG)
                    return to.refuse(
                        {"send", fmt::format("signal {}", body.number), "there is no such signal", EINVAL});
                job.signal(body.number, to);
            });
    case Message::destroy_job:
        return about_job(+[](Server & /*self*/, Who /*from*/, Job &job, DestroyJob && /*body*/,
                             const Responder &to) { job.destroy(to); });
    case Message::cut_job:
        return about_job(+[](Server & /*self*/, Who /*from*/, Job &job, CutJob &&body, const Responder &to) {
            job.cut(body.open, to);
        });
    case Message::tie_job:
        return about_job(+[](Server &self, Who from, Job &job, TieJob && /*body*/, const Responder &to) {
            self.job_ties_[job.record().name()] = {.owner = from, .patience = {}};
            to.tell(Done{});
        });
    default:
        return false;
    }
}

void Server::end_job_ties() {
    std::erase_if(job_ties_, [this](const auto &entry) {
        const auto &[name, tie] = entry;
        const auto job = jobs_->find(name);
        if (!job)
            return true;
        const auto owner = tie.owner.lock();
        if (owner ? !owner->gone : tie.patience && !tie.patience->expired())
            return false;
        kLog.info("{}: the process that it was tied to has left", name);
        job->destroy(std::nullopt);
        return true;
    });
}

} // namespace singularity::agent
