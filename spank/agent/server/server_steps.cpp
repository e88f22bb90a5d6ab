// SPDX-License-Identifier: GPL-2.0-or-later
// What the wrappers of Slurm's tasks ask for.
#include "agent/job/job_plan.hpp"
#include "agent/job/store_here.hpp"
#include "agent/limits/program_memory.hpp"
#include "agent/log.hpp"
#include "agent/slurm/slurm_cgroup.hpp"
#include "common/text.hpp"
#include "network/plan.hpp"
#include "node/door.hpp"
#include "node/spec.hpp"
#include "peers/tcp.hpp"
#include "server.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kWrapperPatience = 30s; // for the wrappers of an earlier agent's step to come again
constexpr std::size_t kHostsLimit = 4096;

// What its other tasks are compared with must make sense itself.
Expected<void> check_plan(const JoinStep &plan, const std::string &own_host) {
    const auto refuse = [](std::string why) { return failure("join", "a step", std::move(why), EINVAL); };
    if (plan.hosts.empty() || plan.hosts.size() > kHostsLimit || plan.node >= plan.hosts.size())
        return refuse(fmt::format("it is on {} hosts, and this is number {}", plan.hosts.size(), plan.node));
    if (plan.ranks_here == 0 || plan.ranks_here > kRanksOfNodeLimit || plan.ranks > kRankLimit)
        return refuse(fmt::format("{} tasks on a host, and {} in all: expected 1 to {}, and at most {}",
                                  plan.ranks_here, plan.ranks, kRanksOfNodeLimit, kRankLimit));
    if (plan.rank >= plan.ranks)
        return refuse(fmt::format("there is no rank {} among {}", plan.rank, plan.ranks));
    if (plan.number != 0 && (plan.number < node::kLeastStandIn || plan.number >= node::kStandInsEnd))
        return refuse(fmt::format("a batch script knows it as {}: expected {} to {}", plan.number,
                                  node::kLeastStandIn, node::kStandInsEnd - 1));
    if (std::set<std::string>(plan.hosts.begin(), plan.hosts.end()).size() != plan.hosts.size())
        return refuse("one of its hosts is there twice");
    if (!plan.places.empty() && plan.places.size() != plan.hosts.size())
        return refuse(
            fmt::format("it is on {} hosts, and has {} places", plan.hosts.size(), plan.places.size()));
    if (peers::short_name(plan.hosts[plan.node]) != own_host)
        return refuse(fmt::format("its host {} is {}, and this is the agent of {}: a host's name must be its "
                                  "NodeName in slurm.conf, or singularityd be told with --host",
                                  plan.node, quote(plan.hosts[plan.node]), own_host));
    if (!plan.publish.empty())
        if (auto checked = network::check({.node = 1,
                                           .ports = plan.publish,
                                           .range = {.first = kLeastPublished, .last = UINT16_MAX},
                                           .owner = {}});
            !checked)
            return checked;
    if (plan.image.any() || !plan.image.mounts.empty() || !plan.image.account.empty() ||
        !plan.image.groups.empty())
        return node::check_image(plan.image);
    return {};
}

// A job that was submitted when the site allowed more goes on.
std::uint32_t allowed_every(std::uint32_t wanted, std::chrono::milliseconds least) {
    const auto seconds = static_cast<std::uint32_t>(std::chrono::ceil<std::chrono::seconds>(least).count());
    return wanted == 0 ? 0 : std::max(wanted, seconds);
}

// What slurmctld says is its first run need not be: it may have forgotten one.
bool may_be_saved(const JoinStep &plan) { return plan.restarts > 0 || !plan.identity.empty(); }

// Slurm begins to count anew with each run of its job. A script that goes on has names of its own.
std::string job_name_of(const Step &step) {
    const auto job = job_of_step(step.name());
    const auto number = step.plan().number;
    return job_name_of_step(step.user().uid,
                            number == 0 || !job ? step.name() : fmt::format("{}.{}", *job, number));
}

// Whose answers nobody hears.
Responder nobody() {
    return {.token = 1, .answer = [](const std::string & /*packet*/, std::span<const int> /*fds*/) {}};
}

} // namespace

std::shared_ptr<Step> Server::find_step(const StepKey &key) {
    const auto found = steps_.find(key);
    return found != steps_.end() && found->second->job().empty() && found->second->complete() ? found->second
                                                                                              : nullptr;
}

std::shared_ptr<Step> Server::adopt_step(const StepKey &key, const std::string &job) {
    auto step = std::make_shared<Step>(key.step, job, Deadline::after(kWrapperPatience));
    steps_[key] = step;
    return step;
}

void Server::join_step(const std::shared_ptr<Client> &client, JoinStep request, Streams descriptors,
                       const Responder &responder) {
    if (client->step)
        return responder.refuse({"join", "a step", "this connection is that of a task already", EINVAL});
    const auto cgroups = client->credentials.cgroups();
    if (!cgroups)
        return responder.refuse(cgroups.error());
    const auto place = client->credentials.slurm_cgroup(*cgroups);
    if (!place)
        return responder.refuse(place.error());
    const auto script = script_of(*place);
    const StepKey key{.uid = client->credentials.uid(),
                      .step = script == 0 ? step_of(*place) : step_of_script(script)};
    if (key.step.empty())
        return responder.refuse(
            {"join", "a step",
             "the process that asks is in the cgroup of none that Slurm has made for it: slurm.conf must say "
             "ProctrackType=proctrack/cgroup, and the agent must see these cgroups",
             EINVAL});
    Step::Wrapper wrapper{.cgroups = cgroups_of_task(*cgroups),
                          .left =
                              [weak = std::weak_ptr(client)] {
                                  const auto one = weak.lock();
                                  return !one || one->gone;
                              },
                          .responder = responder,
                          .waiter = {}};
    // It comes again, as if there was no agent.
    if (jobs_->job_waits(job_name_of_step(key.uid, key.step))) {
        client->gone = true;
        return;
    }
    auto found = steps_.find(key);
    // Slurm begins a step again, or another job's of the same number, when all of the one before have ended:
    // who looks after the rest of that has it still.
    if (found != steps_.end() && !request.again &&
        (found->second->over() || (!found->second->job().empty() && !found->second->has_wrappers()))) {
        steps_.erase(found);
        found = steps_.end();
    }
    const auto rank = request.rank;
    if (request.again) {
        auto joined = found == steps_.end()
                          ? failure("join the step", key.step, "it does not run here", ESRCH)
                          : found->second->join_again(rank, std::move(wrapper));
        if (!joined)
            return responder.refuse(joined.error());
        client->step = found->second;
        client->rank = rank;
        return;
    }
    // What the plugin has told the user already; but requests come from his processes.
    if (!options_.elastic.enabled)
        return responder.refuse(
            {"join", "a step",
             "elastic jobs are disabled on this cluster (elastic.enabled in singularity.yaml)", EPERM});
    if (auto checked = check_plan(request, options_.host); !checked)
        return responder.refuse(checked.error());
    if (auto checked = check_size(request.program); !checked)
        return responder.refuse(checked.error());
    request.every = allowed_every(request.every, options_.elastic.checkpoint_every_least);
    auto store = store_here(request.store);
    if (!store)
        return responder.refuse(store.error());
    request.store = *std::move(store);
    auto program = std::exchange(request.program, {});
    if (found == steps_.end()) {
        const auto &groups = client->credentials.groups();
        Step::User user{.uid = client->credentials.uid(),
                        .gid = client->credentials.gid(),
                        .groups = {groups.begin(), groups.end()}};
        found = steps_
                    .emplace(key, std::make_shared<Step>(key.step, std::move(user), cgroups_of_step(*cgroups),
                                                         request, Deadline::after(options_.agents.patience)))
                    .first;
    }
    const auto step = found->second;
    auto joined = step->join(
        request, {.program = std::move(program), .descriptors = std::move(descriptors), .memory = {}},
        std::move(wrapper));
    if (!joined)
        return responder.refuse(joined.error());
    client->step = step;
    client->rank = rank;
    if (step->complete() && request.node == 0)
        begin_step(step);
}

JobKeeper::JobRequest request_of_step(const Step &step) {
    const auto &plan = step.plan();
    const auto &user = step.user();
    node::Program program;
    program.arguments = step.arguments();
    return {.request = {.hosts = plan.hosts,
                        .ranks_per_node = 0,
                        .devices = plan.devices,
                        .backend = {},
                        .program = std::move(program),
                        .tied = false,
                        .every = plan.of_script ? plan.every : 0, // nothing else is run again
                        .publish = {}},                           // its tasks say that
            .uid = user.uid,
            .gid = user.gid,
            .groups = user.groups,
            .cgroups = step.cgroups(),
            .step = step.name(),
            .places = plan.places,
            .name = job_name_of(step),
            .ranks = plan.ranks,
            .cluster = plan.cluster,
            .restarts = plan.restarts,
            .identity = plan.identity,
            .of_script = plan.of_script,
            .until_srun = plan.until_srun,
            .one_host = plan.job_hosts == 1,
            .elastic = step.elastic(),
            .gpus = step.gpus(),
            .store = plan.store,
            .goes_on = !plan.checkpoint.empty()};
}

void Server::begin_step(const std::shared_ptr<Step> &step) {
    const auto before = jobs_->find(job_name_of(*step));
    if (before && before->record().state() != Job::State::JobRecord_State_ENDED) {
        before->end("Slurm begins its step again");
        waiting_steps_.push_back(step);
        return;
    }
    const auto &plan = step->plan();
    if (plan.checkpoint.empty() && (!may_be_saved(plan) || plan.number != 0))
        return start_step(*step, {});
    auto finding = find_saved(step);
    if (finding)
        return;
    if (plan.restarts == 0 && plan.checkpoint.empty())
        return begin_first(*step, finding.error());
    if (finding.error().code != Worker::kNotBuilt)
        return fail_step(*step, finding.error().message());
    begin_anew(*step, finding.error());
}

void Server::fail_step(Step &step, const std::string &why) {
    ++counters().steps_failed;
    step.finish(why);
}

void Server::start_step(Step &step, const std::string &note) {
    step.set_note(note);
    auto job = jobs_->run(request_of_step(step));
    if (!job)
        return fail_step(step, job.error().message());
    kLog.info("{}: step {} of uid {}, {} ranks on {} hosts", (*job)->record().name(), step.name(),
              step.user().uid, (*job)->ranks(), step.plan().hosts.size());
}

Expected<void> Server::find_saved(const std::shared_ptr<Step> &step) {
    Restore request;
    request.what = step->plan().checkpoint.empty() ? job_name_of(*step) : step->plan().checkpoint;
    kLog.debug("{}: what was saved of it is looked for", request.what);
    auto worker = Worker::start(options_.places.libraries, step->user().uid,
                                WorkRestore{.what = request.what,
                                            .node = {},
                                            .uid = step->user().uid,
                                            .cgroups = step->cgroups(),
                                            .store = step->plan().store});
    if (!worker)
        return propagate(worker);
    findings_.push_back(std::make_unique<Finding>(Finding{.worker = std::move(*worker),
                                                          .client = {},
                                                          .responder = nobody(),
                                                          .request = std::move(request),
                                                          .cgroups = step->cgroups(),
                                                          .given = {},
                                                          .step = step,
                                                          .of_job = {},
                                                          .job = {},
                                                          .only_looks = {}}));
    return {};
}

// Where nobody knows whether there is a checkpoint, beginning anew could lose the work that is in it.
void Server::find_no_saved(Step &step, const Error &why) {
    if (step.plan().restarts == 0 && step.plan().checkpoint.empty() && why.code != ESTALE)
        return begin_first(step, why);
    // With a script that goes on, it never begins anew: the script has seen what it has done.
    if ((why.code != ENOENT && why.code != ESTALE) || !step.plan().checkpoint.empty()) {
        const auto trouble = fmt::format("cannot go on where it was saved: {}", why.message());
        if (!step.plan().of_script)
            return fail_step(step, "it " + trouble);
        run_again({.key = {.uid = step.user().uid, .step = step.name()},
                   .restarts = step.plan().restarts,
                   .hold = why_held(trouble)});
        return step.finish("it " + trouble, {.saved = false, .lost = true, .ends = {}});
    }
    begin_anew(step, why);
}

// As far as slurmctld knows, so nothing is lost that anybody knows of, and a store that is away keeps no job
// from beginning.
void Server::begin_first(Step &step, const Error &why) {
    if (why.code != ENOENT && why.code != Worker::kNotBuilt)
        kLog.warning("step {} of uid {} begins, and whether it did before is not known: {}", step.name(),
                     step.user().uid, why.message());
    start_step(step, {});
}

void Server::begin_anew(Step &step, const Error &why) {
    kLog.info("step {} of uid {} begins anew: {}", step.name(), step.user().uid, why.message());
    // A script that has begun an srun runs again by itself.
    if (step.plan().until_srun && why.code == ENOENT)
        return start_step(step, {});
    start_step(step, fmt::format("the {} begins anew: {}", is_script(step.name()) ? "batch script" : "step",
                                 why.message()));
}

bool Server::handle_step(const std::shared_ptr<Client> &client, node::Packet &packet, Message type,
                         const Responder &responder) {
    if (type == Message::join_step) {
        auto body = node::decode<JoinStep>(packet.bytes);
        if (body)
            join_step(client, std::move(*body), std::move(client->brought), responder);
        return body.has_value();
    }
    if (!client->step) {
        responder.refuse({"use", "a rank", "this connection is that of none", EINVAL});
        return true;
    }
    if (type == Message::wait_rank) {
        if (!node::decode<WaitRank>(packet.bytes))
            return false;
        client->step->wait(client->rank, responder);
        return true;
    }
    if (type == Message::watch_standstill) {
        if (!node::decode<WatchStandstill>(packet.bytes))
            return false;
        client->step->standstill().watch(responder, [other = std::weak_ptr(client)] {
            const auto there = other.lock();
            return !there || there->gone;
        });
        return true;
    }
    const auto body = node::decode<SignalRank>(packet.bytes);
    if (!body)
        return false;
    const auto places = client->step->places_of(client->rank);
    if (body->number == SIGTERM && !places.empty()) {
        client->step->told_to_end(client->rank);
        responder.tell(Done{});
        return true;
    }
    if (places.empty())
        responder.refuse({"send", fmt::format("signal {}", body->number), "the task does not run", ESRCH});
    for (const auto &place : places)
        if (LiveNode *const node = find_node(place.node); node != nullptr)
            // As Slurm, which signals tasks and not what they have started.
            node->signal({.node = place.node, .task = place.task, .number = body->number}, responder, true);
    return true;
}

void Server::look_at_steps() {
    for (const auto &step : std::exchange(waiting_steps_, {}))
        if (step->job().empty() && !step->over())
            begin_step(step);
    for (const auto &[key, step] : steps_) {
        step->doors().look();
        step->standstill().look();
        step->look_at_wrappers([this, &name = step->name()](const Step::Place &place) {
            kLog.info("{}: a task of step {} has left: its rank is killed", place.node, name);
            if (LiveNode *const node = find_node(place.node); node != nullptr)
                node->signal({.node = place.node, .task = place.task, .number = SIGKILL}, nobody());
        });
    }
    std::erase_if(steps_, [](const auto &entry) { return entry.second->over(); });
}

} // namespace singularity::agent
