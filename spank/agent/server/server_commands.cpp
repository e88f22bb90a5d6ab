// SPDX-License-Identifier: GPL-2.0-or-later
// Requests about Slurm's commands in the nodes of a step. They run outside, as children of the wrappers of
// the step's tasks: before the step is saved, the wrappers see to it that none is left.
#include "agent/job/job_plan.hpp"
#include "agent/job/store_here.hpp"
#include "agent/slurm/slurm_cgroup.hpp"
#include "agent/step/doors.hpp"
#include "node/door.hpp"
#include "peers/peer_messages.pb.h"
#include "server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace singularity::agent {

bool Server::handle_commands(const std::shared_ptr<Client> &client, const node::Packet &packet, Message type,
                             const Responder &responder) {
    const auto rest = node::decode<CommandsRest>(packet.bytes);
    const auto find = node::decode<FindSteps>(packet.bytes);
    const auto runs = node::decode<StepRuns>(packet.bytes);
    const auto input = node::decode<InputRead>(packet.bytes);
    const auto save = node::decode<SaveSteps>(packet.bytes);
    const bool good = type == Message::open_door     ? node::decode<OpenDoor>(packet.bytes).has_value()
                      : type == Message::watch_saves ? node::decode<WatchSaves>(packet.bytes).has_value()
                      : type == Message::begin_apart
                          ? node::decode<BeginApart>(packet.bytes).has_value()
                          : rest.has_value() || find.has_value() || runs.has_value() || input.has_value() ||
                                save.has_value();
    if (!good)
        return false;
    if (!client->step)
        responder.refuse({"look after", "Slurm's commands", "this connection is that of no task", EINVAL});
    else if (type == Message::open_door)
        open_door(client, responder);
    else if (type == Message::watch_saves)
        client->step->doors().watch(
            client.get(), options_.elastic.save_running_steps && is_script(client->step->name()), responder);
    else if (type == Message::begin_apart)
        begin_apart(*client, responder);
    else if (find)
        find_steps(client, *find, responder);
    else if (runs)
        step_runs(*client, runs->number, responder);
    else if (input)
        input_read(*client, *input, responder);
    else if (save)
        save_steps(*client, *save, responder);
    else
        commands_rest(client, *rest, responder);
    return true;
}

// Kept for as long as the script may ask; where there are too many, the oldest goes, of a step that has ended
// otherwise.
void Server::input_read(const Client &client, const InputRead &about, const Responder &responder) {
    const auto uid = client.credentials.uid();
    const auto job = job_of_step(client.step->name());
    const auto number = client.step->plan().number;
    const auto script = std::ranges::find_if(
        scripts_, [&](const auto &one) { return job && one.uid == uid && one.job == *job && !one.left; });
    responder.tell(Done{});
    if (script == scripts_.end() || number == 0)
        return;
    auto &inputs = script->inputs;
    auto entry = std::ranges::find(inputs, number, &Script::Input::number);
    if (entry == inputs.end()) {
        if (inputs.size() >= kStepsLimit)
            inputs.erase(inputs.begin());
        entry = inputs.insert(inputs.end(), {.number = number, .read = {}});
    }
    entry->read[client.rank] = about.bytes;
}

StepInput Server::input_of(const Client &script, std::uint32_t number, std::uint32_t ranks) const {
    const auto one = std::ranges::find_if(
        scripts_, [&](const auto &other) { return other.client.lock().get() == &script; });
    if (one == scripts_.end())
        return {};
    const auto entry = std::ranges::find(one->inputs, number, &Script::Input::number);
    if (entry == one->inputs.end())
        return {};
    StepInput out;
    for (const auto &[task, bytes] : entry->read)
        if (task == out.bytes.size()) // in their order, from 0
            out.bytes.push_back(bytes);
    return out.bytes.size() == ranks ? out : StepInput();
}

void Server::step_runs(const Client &client, std::uint32_t number, const Responder &responder) const {
    const auto uid = client.credentials.uid();
    const auto job = job_of_step(client.step->name());
    const auto runs = [&](const auto &entry) {
        const auto &[key, step] = entry;
        const auto tasks = step->tasks();
        return key.uid == uid && job.value_or(0) == job_of_step(key.step).value_or(0) &&
               step->plan().number == number &&
               std::ranges::any_of(tasks, [&](auto task) { return !step->places_of(task).empty(); });
    };
    if (number != 0 && std::ranges::any_of(steps_, runs))
        responder.tell(Done{});
    else
        responder.refuse({"find", fmt::format("the step {}", number), "it does not run here", EAGAIN});
}

void Server::find_steps(const std::shared_ptr<Client> &client, const FindSteps &request,
                        const Responder &responder) {
    const auto job = job_of_step(client->step->name());
    auto store = store_here(request.store);
    auto cgroups = client->credentials.cgroups();
    if (!job || !store || !cgroups)
        return responder.refuse(!job ? job.error() : !store ? store.error() : cgroups.error());
    if (request.numbers.size() > kStepsLimit)
        return responder.refuse({"find", fmt::format("{} steps", request.numbers.size()),
                                 fmt::format("at most {} can be asked for", kStepsLimit), EINVAL});
    if (std::ranges::any_of(findings_, [&](const auto &one) {
            return one->only_looks && !one->over && one->client == client;
        }))
        return responder.refuse({"find", "steps", "others are looked for already", EBUSY});
    const auto look = std::make_shared<StepsLook>(StepsLook{.client = client,
                                                            .job = *job,
                                                            .request = request,
                                                            .store = *std::move(store),
                                                            .cgroups = *std::move(cgroups),
                                                            .responder = responder,
                                                            .found = {}});
    find_next_step(look);
}

// One after the other: each takes a process. What an earlier run has left of a step does not count, and
// neither does a checkpoint after which the step has run on: what it has done since then, the script has
// seen.
void Server::find_next_step(const std::shared_ptr<StepsLook> &look) {
    const auto &request = look->request;
    auto &found = look->found.checkpoints;
    if (found.size() == request.numbers.size())
        return look->responder.tell(look->found);
    const auto name = job_name_of_step(look->client->credentials.uid(),
                                       fmt::format("{}.{}", look->job, request.numbers[found.size()]));
    look_for_saved(
        name, look->client, look->cgroups, look->store,
        [this, look, name, found_before = found.size()](const Expected<WorkFoundJob> &saved) {
            peers::wire::JobRecord record;
            if (!saved && saved.error().code != ENOENT)
                return look->responder.refuse(saved.error());
            const bool is_of_this_run =
                saved &&
                record.ParseFromArray(saved->record.data(), static_cast<int>(saved->record.size())) &&
                record.name() == name && record.restarts() == look->request.restarts &&
                (look->request.with_script || !record.saving_goes_on());
            look->found.checkpoints.push_back(is_of_this_run ? saved->checkpoint : std::string());
            look->found.inputs.push_back(
                is_of_this_run ? input_of(*look->client, look->request.numbers[found_before], record.ranks())
                               : StepInput());
            find_next_step(look);
        });
}

void Server::open_door(const std::shared_ptr<Client> &client, const Responder &responder) {
    const auto refuse = [&](std::string why, int code) {
        responder.refuse({"open a door for", "Slurm's commands", std::move(why), code});
    };
    Step &step = *client->step;
    const auto ranks = step.nodes_of(client->rank);
    if (step.job().empty() || !ranks)
        return refuse("its rank does not run yet", EAGAIN);
    std::vector<std::filesystem::path> doors;
    std::vector<std::string> commands;
    SocketOwner owner;
    for (const auto &[rank, name] : *ranks) {
        const LiveNode *const node = look_at_node(name);
        if (node == nullptr || node->record().spec.uid != client->credentials.uid())
            continue;
        const auto &spec = node->record().spec;
        doors.push_back(node::Room(options_.places.state, name).run() / node::door_name(rank));
        commands = spec.commands;
        owner = {.uid = spec.uid, .gid = spec.gid};
    }
    if (doors.empty() || commands.empty()) // it was saved by a release that had no stand-ins
        return refuse("there are none in its node", ENOTSUP);
    auto socket = step.doors().open({.who = client.get(),
                                     .left =
                                         [weak = std::weak_ptr(client)] {
                                             const auto one = weak.lock();
                                             return !one || one->gone;
                                         }},
                                    doors, owner);
    if (!socket)
        return responder.refuse(socket.error());
    responder.tell(Door{.commands = std::move(commands)}, std::array{*socket});
}

} // namespace singularity::agent
