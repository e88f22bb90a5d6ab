// SPDX-License-Identifier: GPL-2.0-or-later
// Batch scripts. Those of jobs that run again are not to notice that Slurm ends them: they are begun again
// from their first line. With the others goes what is in the store of their job's steps.
#include "agent/job/job_plan.hpp"
#include "agent/limits/budget.hpp"
#include "agent/log.hpp"
#include "agent/slurm/slurm_cgroup.hpp"
#include "server.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenScriptQuestions = 1s;
constexpr auto kUntilTurn = 200ms;        // while its user has many questions open
constexpr auto kScriptEndPatience = 600s; // for Slurm to have ended a job whose script has ended
constexpr auto kUntilWritten = 10s;       // slurmctld writes what it knows every 5 s

} // namespace

bool Server::handle_script(const std::shared_ptr<Client> &client, const node::Packet &packet, Message type,
                           const Responder &responder) {
    const auto begun = node::decode<BeginScript>(packet.bytes);
    const bool begins = begun.has_value();
    if (!begins && !(type == Message::hold_script && node::decode<HoldScript>(packet.bytes)))
        return false;
    const auto refuse = [&](std::string why, int code) {
        responder.refuse({"look after", "a batch script", std::move(why), code});
        return true;
    };
    const auto found =
        std::ranges::find_if(scripts_, [&](const auto &one) { return one.client.lock() == client; });
    if (!begins && (found == scripts_.end() || found->holder))
        return refuse("it has not begun, or is held already", EALREADY);
    if (!begins) {
        found->runs_again = found->stop;
        if (found->runs_again) {
            responder.tell(ScriptFate{.runs_again = true});
        } else {
            found->holder = responder;
            found->ask_again = Deadline::after(0s);
        }
        return true;
    }
    const auto cgroups = client->credentials.cgroups();
    if (!cgroups)
        return refuse(cgroups.error().message(), cgroups.error().code);
    const auto place = client->credentials.slurm_cgroup(*cgroups);
    if (!place)
        return refuse(place.error().message(), place.error().code);
    const auto job = script_of(*place);
    const auto uid = client->credentials.uid();
    if (job == 0)
        return refuse("the process that asks is in the cgroup of none that Slurm has made for it", EINVAL);
    if (found != scripts_.end())
        return refuse("it has begun already", EALREADY);
    const auto of_same = std::ranges::count(scripts_, uid, &Script::uid);
    if (auto why = budgets().refusal(Budget::scripts, uid, static_cast<std::uint64_t>(of_same)))
        return refuse(*why, EDQUOT);
    // The same, whose agent was another, or whose job runs again.
    std::erase_if(scripts_, [&](const auto &one) { return one.uid == uid && one.job == job && one.left; });
    local_trees_.begin(uid, job, begun->restarts);
    scripts_.push_back({.uid = uid,
                        .job = job,
                        .restarts = begun->restarts,
                        .client = client,
                        .beginner = responder,
                        .holder = {},
                        .stop = false,
                        .subprocess = {},
                        .ask_again = {},
                        .turn = {},
                        .runs_again = false,
                        .left = {},
                        .begins = false,
                        .was_begun = false,
                        .reminds = false,
                        .ended = false,
                        .over = false,
                        .inputs = {},
                        .steps_saved = {},
                        .steps_named = {}});
    return true;
}

void Server::look_at_scripts() {
    for (auto &script : scripts_)
        look_at_script(script);
    std::erase_if(scripts_, [](const auto &script) { return script.over; });
    std::erase_if(forgetting_, [](Forgetter &one) {
        node::Packet packet;
        for (;;) {
            const auto received = one.worker.receive(packet);
            if (received == node::Received::nothing)
                return false;
            if (received != node::Received::packet) {
                if (const auto waiter = std::exchange(one.waiter, std::nullopt))
                    waiter->refuse({"remove", "checkpoints of a batch script",
                                    "the process that was to do it has died", ECHILD});
                return true;
            }
            const auto failed = node::decode<WorkFailed>(packet.bytes);
            if (failed)
                kLog.error("{}", failed->error.why);
            if (!failed && !node::decode<WorkFinished>(packet.bytes))
                continue;
            if (const auto waiter = std::exchange(one.waiter, std::nullopt)) {
                if (failed)
                    waiter->refuse(
                        {failed->error.doing, failed->error.on, failed->error.why, failed->error.code});
                else
                    waiter->tell(Done{});
            }
        }
    });
}

void Server::look_at_script(Script &script) {
    const auto client = script.client.lock();
    if ((!client || client->gone) && !script.left) {
        script.left = Deadline::after(kScriptEndPatience);
        script.ask_again = Deadline::after(0s);
    }
    if (script.left && script.left->expired()) {
        kLog.warning("{}; what is in the store of its steps stays there",
                     timeout_error(*script.left, fmt::format("the end of job {}", script.job)).message());
        script.over = true;
    }
    if (script.ask_again && script.ask_again->expired() && !script.subprocess &&
        !script.turn.has_come(Budget::questions, script.uid, fmt::format("the script of job {}", script.job)))
        script.ask_again = Deadline::after(kUntilTurn);
    if (script.ask_again && script.ask_again->expired() && !script.subprocess) {
        script.ask_again.reset();
        auto subprocess =
            SlurmRequest::about(options_.places.libraries, {.id = script.job, .uid = script.uid});
        if (subprocess) {
            script.subprocess = std::move(*subprocess);
        } else {
            kLog.error("{}", subprocess.error().message());
            script.ask_again = Deadline::after(kBetweenScriptQuestions);
        }
    }
    if (!script.subprocess)
        return;
    auto answer = script.subprocess->take();
    if (answer && !*answer)
        return;
    script.subprocess.reset();
    if (std::exchange(script.begins, false)) {
        if (!answer)
            kLog.warning("{}; it begins later", answer.error().message());
        script.was_begun = true;
        script.ask_again = Deadline::after(kUntilWritten);
        return;
    }
    if (std::exchange(script.reminds, false) && answer) {
        script.ask_again = Deadline::after(kBetweenScriptQuestions);
        return;
    }
    const auto about = answer ? parse_slurm_job(**answer) : propagate(answer);
    if (about)
        return slurm_has_told(script, *about);
    kLog.error("{}", about.error().message());
    if (const auto holder = std::exchange(script.holder, std::nullopt))
        holder->tell(ScriptFate{.runs_again = false});
    if (script.left)
        script.ask_again = Deadline::after(kBetweenScriptQuestions);
}

// Who decides that a job runs again may still be at it: that of a time limit is decided when its step is
// saved.
void Server::slurm_has_told(Script &script, const SlurmJob &about) {
    using Fate = SlurmJob::Fate;
    if (script.left) {
        const bool goes_on = about.fate == Fate::stays || about.fate == Fate::terminated;
        if (script.runs_again && goes_on && !about.completing && script.restarts == about.restarts)
            return remind(script);
        if (script.was_begun) {
            script.over = true;
            return;
        }
        const bool ended = about.fate != Fate::stays && about.fate != Fate::preempted &&
                           about.fate != Fate::requeued && !about.completing;
        const bool said_before = std::exchange(script.ended, ended);
        if (ended && about.known && !said_before) {
            script.ask_again = Deadline::after(kUntilWritten);
            return;
        }
        script.over = ended;
        if (ended && about.known)
            forget(script);
        if (about.fate == Fate::requeued && !about.completing)
            return begin_again(script);
    } else if (about.fate == Fate::requeued) {
        script.runs_again = true;
        if (const auto holder = std::exchange(script.holder, std::nullopt))
            holder->tell(ScriptFate{.runs_again = true});
        return;
    } else if (!goes_on_later(about)) {
        if (const auto holder = std::exchange(script.holder, std::nullopt))
            holder->tell(ScriptFate{.runs_again = false});
        return;
    }
    if (!script.over)
        script.ask_again = Deadline::after(kBetweenScriptQuestions);
}

// A slurmctld that is killed forgets its last seconds: that it runs the job again, and maybe that its script
// has ended. It takes the script's end for the job's, or believes that it runs until it misses it on its
// nodes, half an hour later.
void Server::remind(Script &script) {
    kLog.warning("slurmctld has forgotten that it runs job {} again, and is told so", script.job);
    auto subprocess = SlurmRequest::requeue(options_.places.libraries, {.id = script.job, .uid = script.uid});
    script.was_begun = false;
    script.reminds = subprocess.has_value();
    if (subprocess) {
        script.subprocess = std::move(*subprocess);
    } else {
        kLog.error("{}", subprocess.error().message());
        script.ask_again = Deadline::after(kBetweenScriptQuestions);
    }
}

// Slurm lets it wait for two minutes, unless it is told otherwise: until its nodes have forgotten the last
// run. They know one from the other by when its credentials were made.
void Server::begin_again(Script &script) {
    auto subprocess = SlurmRequest::begin(options_.places.libraries, {.id = script.job, .uid = script.uid});
    script.begins = subprocess.has_value();
    script.over = !script.begins;
    if (subprocess)
        script.subprocess = std::move(*subprocess);
    else
        kLog.error("{}", subprocess.error().message());
}

void Server::forget(const Script &script) {
    to_forget_.push_back({.work = {.uid = script.uid,
                                   .prefix = job_name_of_step(script.uid, fmt::format("{}.", script.job)),
                                   .only = {}},
                          .turn = {},
                          .waiter = {}});
    begin_forgetting();
}

// What was saved of it would otherwise go on in its line beside steps that have gone on without it.
void Server::begin_apart(const Client &client, const Responder &responder) {
    const auto refuse = [&](std::string why, int code) {
        responder.refuse({"begin a step of", "a batch script", std::move(why), code});
    };
    const auto &name = client.step->name();
    const auto job = jobs_->find(client.step->job());
    if (!is_script(name))
        return refuse("only the wrapper of a batch script may ask for that", EPERM);
    if (!job)
        return refuse("it does not run yet", EAGAIN);
    const auto was_saved = job->begin_apart();
    if (!was_saved)
        return responder.refuse(was_saved.error());
    if (!*was_saved)
        return responder.tell(Done{});
    const auto uid = client.credentials.uid();
    to_forget_.push_back({.work = {.uid = uid, .prefix = job_name_of_step(uid, name), .only = {}},
                          .turn = {},
                          .waiter = responder});
    begin_forgetting();
}

// Nothing is lost by waiting, and nobody waits for it.
void Server::begin_forgetting() {
    std::erase_if(to_forget_, [this](Forgetting &one) {
        if (!one.turn.has_come(Budget::workers, one.work.uid, "what is to go from the store"))
            return false;
        auto worker = Worker::start(options_.places.libraries, one.work.uid, one.work);
        if (worker)
            forgetting_.push_back({.worker = std::move(*worker), .waiter = std::move(one.waiter)});
        else if (worker.error().code != Worker::kNotBuilt)
            kLog.error("{}", worker.error().message());
        if (!worker && one.waiter)
            one.waiter->refuse(worker.error());
        return true;
    });
}

bool Server::script_rests(const StepKey &key, bool stop) {
    const auto job = job_of_step(key.step);
    const auto script = std::ranges::find_if(
        scripts_, [&](const auto &one) { return job && one.uid == key.uid && one.job == *job && !one.left; });
    if (script == scripts_.end())
        return false;
    script->stop = script->stop || stop;
    if (script->stop)
        if (const auto beginner = std::exchange(script->beginner, std::nullopt))
            beginner->tell(ScriptFate{.runs_again = true});
    return script->runs_again;
}

} // namespace singularity::agent
