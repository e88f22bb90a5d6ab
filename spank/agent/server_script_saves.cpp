// SPDX-License-Identifier: GPL-2.0-or-later
// Batch scripts that run in a virtual node. Slurm's commands in it run outside, as children of the script's
// wrapper: before the script is saved, the wrapper sees to it that none is left.
#include "common/text.hpp"
#include "job_save.hpp"
#include "node_socket.hpp"
#include "server.hpp"
#include "slurm_cgroup.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kRestPatience = 60s; // longer than wrappers wait for a command
constexpr int kDoorBacklog = 128;
constexpr std::size_t kWordsLimit = 500; // of a wrapper, which is a user's process

} // namespace

bool Server::handle_commands(const std::shared_ptr<Client> &client, const node::Packet &packet, Message type,
                             const Asker &asker) {
    const auto found =
        std::ranges::find_if(scripts_, [&](const auto &one) { return one.client.lock() == client; });
    if (found == scripts_.end()) {
        asker.refuse({"look after", "the commands of a batch script", "it has not begun", EINVAL});
        return true;
    }
    auto &saves = found->saves;
    if (type == Message::open_door) {
        if (!node::decode<OpenDoor>(packet.bytes))
            return false;
        open_door(*found, asker);
        return true;
    }
    if (type == Message::watch_saves) {
        if (!node::decode<WatchSaves>(packet.bytes))
            return false;
        if (saves.then)
            asker.tell(SaveBegins{});
        else
            saves.watcher = asker;
        return true;
    }
    const auto rest = node::decode<CommandsRest>(packet.bytes);
    if (!rest)
        return false;
    const auto then = std::exchange(saves.then, {});
    saves.until.reset();
    if (!then) { // nobody waits for it any more
        asker.tell(Done{});
        return true;
    }
    saves.resting = asker;
    then(rest->trouble.empty()
             ? Expected<void>()
             : failure("save", "the batch script",
                       escaped(std::string_view(rest->trouble).substr(0, kWordsLimit)), JobSave::kUnsavable));
    return true;
}

void Server::open_door(const Script &script, const Asker &asker) {
    const auto refuse = [&](std::string why) {
        asker.refuse({"open a door for", "the commands of a batch script", std::move(why), ESRCH});
    };
    const auto step = steps_.find({.uid = script.uid, .step = step_of_script(script.job)});
    const auto places = step == steps_.end() ? std::vector<Step::Place>() : step->second->places_of(0);
    const LiveNode *const node = places.empty() ? nullptr : look_at_node(places.front().node);
    if (node == nullptr)
        return refuse("it does not run in a virtual node here");
    const auto &spec = node->record().spec;
    const node::Room room(options_.places.state, spec.name);
    auto socket =
        listen_in_node(room.run(), node::Room::kDoor, kDoorBacklog, {.uid = spec.uid, .gid = spec.gid});
    if (!socket)
        return asker.refuse(socket.error());
    asker.tell(Door{.commands = spec.commands}, std::array{socket->get()});
}

void Server::rest_commands(const StepKey &key, std::function<void(Expected<void>)> then) {
    Script *const script = find_script(key);
    if (script == nullptr)
        return then(failure("save", "the batch script", "its wrapper is not connected", EAGAIN));
    auto &saves = script->saves;
    if (saves.then || saves.resting)
        return then(failure("save", "the batch script", "it is being saved already", EALREADY));
    saves.then = std::move(then);
    saves.until = Deadline::after(kRestPatience);
    if (const auto watcher = std::exchange(saves.watcher, std::nullopt))
        watcher->tell(SaveBegins{});
}

void Server::let_commands_go(const StepKey &key) {
    Script *const script = find_script(key);
    if (script == nullptr)
        return;
    script->saves.until.reset();
    script->saves.then = {};
    if (const auto resting = std::exchange(script->saves.resting, std::nullopt))
        resting->tell(Done{});
}

void Server::look_at_saves(Script &script) {
    auto &saves = script.saves;
    const auto client = script.client.lock();
    const bool gone = !client || client->gone;
    if (!saves.then || (!gone && !(saves.until && saves.until->expired())))
        return;
    const auto then = std::exchange(saves.then, {});
    const auto until = std::exchange(saves.until, std::nullopt);
    then(gone ? failure("save", "the batch script", "its wrapper has left", EAGAIN)
              : Expected<void>(
                    std::unexpected(timeout_error(*until, "Slurm's commands in the batch script"))));
}

} // namespace singularity::agent
