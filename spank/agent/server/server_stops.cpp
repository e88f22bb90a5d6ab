// SPDX-License-Identifier: GPL-2.0-or-later
// SIGSTOP. Nobody can take it and pass it on: what Slurm sends a task or a batch script stops its
// singularity-task alone. So the agent looks which of them stand still, and stops their programs as well.
// SIGCONT they pass on themselves.
#include "server.hpp"

#include <chrono>
#include <csignal>
#include <span>
#include <string>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenStops = 500ms;

// Who has been stopped is in no position to hear of it.
Responder nobody_asks() {
    return {.token = 1, .answer = [](const std::string & /*packet*/, std::span<const int> /*fds*/) {}};
}

} // namespace

// Again and again: a program that a checkpoint has let go on stands still again.
void Server::look_at_stops() {
    if (next_stops_ && !next_stops_->expired())
        return;
    next_stops_.reset();
    const auto is_stopped = [this](const Client &client) {
        next_stops_ = Deadline::after(kBetweenStops);
        return client.credentials.is_stopped();
    };
    for (const auto &client : clients_) {
        if (client->gone || !client->step)
            continue;
        const auto places = client->step->places_of(client->rank);
        if (places.empty() || !is_stopped(*client))
            continue;
        for (const auto &place : places)
            if (LiveNode *const node = find_node(place.node); node != nullptr)
                node->signal({.node = place.node, .task = place.task, .number = SIGSTOP}, nobody_asks(),
                             true);
    }
    for (const auto &script : scripts_)
        if (const auto client = script.client.lock();
            client && !client->gone && !client->step && is_stopped(*client))
            client->credentials.stop_child();
}

} // namespace singularity::agent
