// SPDX-License-Identifier: GPL-2.0-or-later
// Requests about Slurm's commands in the nodes of a step. They run outside, as children of the wrappers of
// the step's tasks: before the step is saved, the wrappers see to it that none is left.
#include "doors.hpp"
#include "node/door.hpp"
#include "server.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace singularity::agent {

bool Server::handle_commands(const std::shared_ptr<Client> &client, const node::Packet &packet, Message type,
                             const Asker &asker) {
    const auto rest = node::decode<CommandsRest>(packet.bytes);
    const bool good = type == Message::open_door     ? node::decode<OpenDoor>(packet.bytes).has_value()
                      : type == Message::watch_saves ? node::decode<WatchSaves>(packet.bytes).has_value()
                                                     : rest.has_value();
    if (!good)
        return false;
    if (!client->step)
        asker.refuse({"look after", "Slurm's commands", "this connection is that of no task", EINVAL});
    else if (type == Message::open_door)
        open_door(client, asker);
    else if (type == Message::watch_saves)
        client->step->doors().watch(client.get(), asker);
    else
        client->step->doors().rest_of(client.get(), rest->trouble, asker);
    return true;
}

void Server::open_door(const std::shared_ptr<Client> &client, const Asker &asker) {
    const auto refuse = [&](std::string why, int code) {
        asker.refuse({"open a door for", "Slurm's commands", std::move(why), code});
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
        if (node == nullptr || node->record().spec.uid != client->sender.uid())
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
        return asker.refuse(socket.error());
    asker.tell(Door{.commands = std::move(commands)}, std::array{*socket});
}

} // namespace singularity::agent
