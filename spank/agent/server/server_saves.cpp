// SPDX-License-Identifier: GPL-2.0-or-later
// Checkpoints of a batch script together with its steps, after which all of them go on. The script's wrapper
// says when its steps are to be saved and to end; their coordinators may be agents of other hosts. The
// script's image names the checkpoints of its steps, so it is what decides: as long as it is not there, the
// one before is valid, and so are those that it names. They go when the next image of the script is there.
#include "agent/job/job_plan.hpp"
#include "agent/log.hpp"
#include "agent/slurm/slurm_cgroup.hpp"
#include "peers/handshake.hpp"
#include "peers/peer_messages.pb.h"
#include "server.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr auto kStepsPatience = 340s;    // longer than wrappers have
constexpr std::size_t kHostsMost = 4096; // of a job
constexpr std::size_t kNameMost = 256;   // of a checkpoint

wire::Envelope request_of(const SaveSteps &request, std::uint32_t uid, std::uint32_t job) {
    wire::Envelope out;
    auto &steps = *out.mutable_save_steps();
    steps.set_what(request.verb == StepsVerb::save   ? wire::SaveSteps::SAVE
                   : request.verb == StepsVerb::end  ? wire::SaveSteps::END
                   : request.verb == StepsVerb::look ? wire::SaveSteps::LOOK
                                                     : wire::SaveSteps::GO_ON);
    steps.set_uid(uid);
    steps.set_job(job);
    for (const auto number : request.numbers)
        steps.add_numbers(number);
    return out;
}

} // namespace

Server::Script *Server::script_of_job(std::uint32_t uid, std::string_view step) {
    const auto job = job_of_step(step);
    const auto found = std::ranges::find_if(
        scripts_, [&](const auto &one) { return job && one.uid == uid && one.job == *job && !one.left; });
    return found == scripts_.end() ? nullptr : &*found;
}

void Server::save_steps(const Client &client, const SaveSteps &request, const Responder &responder) {
    const auto refuse = [&](std::string why, int code) {
        responder.refuse({"save", "the steps of a script", std::move(why), code});
    };
    const auto uid = client.credentials.uid();
    const auto &name = client.step->name();
    const auto job = job_of_step(name);
    if (!is_script(name) || !job)
        return refuse("only the wrapper of a batch script that is saved may ask for that", EPERM);
    if (!options_.elastic.save_running_steps) // whatever the wrapper has been told
        return refuse("elastic.save_running_steps is false in singularity.yaml on this host", EPERM);
    if (request.numbers.size() > kStepsLimit || request.hosts.empty() || request.hosts.size() > kHostsMost)
        return refuse(fmt::format("{} steps on {} hosts: expected at most {} on 1 to {}",
                                  request.numbers.size(), request.hosts.size(), kStepsLimit, kHostsMost),
                      EINVAL);
    std::vector<std::string> hosts;
    for (const auto &host : request.hosts) {
        hosts.push_back(peers::short_name(host));
        if (!peers::is_host_name(hosts.back()))
            return refuse(fmt::format("{} is no name of a host", host.substr(0, kNameMost)), EINVAL);
    }
    if (request.verb == StepsVerb::lose) {
        if (auto why = reruns_.no_room(uid)) // the job's own processes may say so again and again
            return refuse(*std::move(why), EDQUOT);
        run_again({.key = {.uid = uid, .step = name}, .restarts = request.restarts, .hold = {}});
        return responder.tell(SavedSteps{});
    }
    client.step->doors().wait_longer();
    const auto take = [this, uid, name, numbers = request.numbers, hosts,
                       responder](const std::vector<Expected<wire::Envelope>> &replies) {
        std::map<std::uint32_t, SavedStep> saved;
        Script *const script = script_of_job(uid, name);
        for (std::size_t at = 0; at < replies.size(); ++at) {
            const auto &reply = replies[at];
            if (const auto outcome = outcome_of(reply); !outcome)
                return responder.refuse(outcome.error());
            for (const auto &one : reply->saved_steps().saved()) {
                saved[one.number()] = {.there = true,
                                       .here = one.here() && hosts[at] == options_.host,
                                       .checkpoint = one.checkpoint()};
                if (script != nullptr)
                    script->steps_saved.insert({one.checkpoint(), one.before()});
            }
        }
        SavedSteps out;
        std::ranges::transform(numbers, std::back_inserter(out.steps),
                               [&](auto number) { return saved[number]; });
        responder.tell(out);
    };
    jobs_->ask_each(hosts, request_of(request, uid, *job), kStepsPatience, take);
}

void Server::commands_rest(const std::shared_ptr<Client> &client, const CommandsRest &rest,
                           const Responder &responder) {
    const auto is_too_long = [](const auto &one) { return one.size() > kNameMost; };
    if (rest.named.size() > 2 * kStepsLimit || std::ranges::any_of(rest.named, is_too_long))
        return responder.refuse({"look after", "Slurm's commands", "too many checkpoints are named", EINVAL});
    if (is_script(client->step->name()))
        if (Script *const script = script_of_job(client->credentials.uid(), client->step->name()))
            script->steps_named = {rest.named.begin(), rest.named.end()};
    client->step->doors().rest_of(client.get(), rest, responder);
}

void Server::script_saved(const StepKey &key) {
    Script *const script = script_of_job(key.uid, key.step);
    if (script == nullptr)
        return;
    std::vector<std::string> gone;
    std::ranges::set_difference(script->steps_saved, script->steps_named, std::back_inserter(gone));
    std::erase(gone, std::string());
    script->steps_saved = script->steps_named;
    forget_images(script->uid, script->job, std::move(gone));
}

// Of a step that runs on after it. Its coordinator says so, whose host may be another than the script's.
void Server::forget_image(const StepKey &key, std::string image) {
    if (const auto job = job_of_step(key.step); job && !image.empty())
        forget_images(key.uid, *job, {std::move(image)});
}

void Server::forget_images(std::uint32_t uid, std::uint32_t job, std::vector<std::string> images) {
    if (images.empty()) // which would mean all of them
        return;
    to_forget_.push_back({.work = {.uid = uid,
                                   .prefix = job_name_of_step(uid, fmt::format("{}.", job)),
                                   .only = std::move(images)},
                          .turn = {},
                          .waiter = {}});
    begin_forgetting();
}

} // namespace singularity::agent
