// SPDX-License-Identifier: GPL-2.0-or-later
// What a client asks for, and whether he may.
#include "agent/limits/budget.hpp"
#include "agent/limits/program_memory.hpp"
#include "agent/log.hpp"
#include "common/plain_path.hpp"
#include "common/text.hpp"
#include "node/spec.hpp"
#include "server.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace singularity::agent {

Server::Held *Server::find(const Client &client, const std::string &name, const Responder &responder) {
    const auto found = nodes_.find(name);
    if (waiting_nodes_.contains(name)) {
        responder.refuse({"find the virtual node", quote(name),
                          "it could not be looked at yet since this host's agent was started: try again",
                          EAGAIN});
        return nullptr;
    }
    if (found == nodes_.end() || found->second.node->state() == LiveNode::State::gone) {
        responder.refuse({"find the virtual node", quote(name), "there is none of that name", ENOENT});
        return nullptr;
    }
    if (auto may = client.credentials.may_touch(found->second.node->record().spec); !may) {
        responder.refuse(may.error());
        return nullptr;
    }
    return &found->second;
}

Responder Server::responder_for(const std::shared_ptr<Client> &client, std::uint32_t token) {
    return {
        .token = token,
        .answer = [weak = std::weak_ptr(client)](const std::string &bytes, std::span<const int> descriptors) {
            const auto to = weak.lock();
            if (node::header_of(bytes)->type == std::to_underlying(Failed::kType))
                ++counters().requests_refused;
            // Who does not read his answers has no use for them. All of them fit into datagrams: the
            // memory of a memfd, which is charged to the agent, would be held by whoever has its
            // descriptor.
            if (to && !to->gone && node::send_datagram(to->socket.get(), bytes, descriptors) != 0)
                to->gone = true;
        }};
}

bool Server::handle(const std::shared_ptr<Client> &client, node::Packet &packet) {
    const auto header = node::header_of(packet.bytes);
    if (!header || header->token == 0)
        return false;
    const Responder responder = responder_for(client, header->token);
    // A request about one node: decode, find, do.
    const auto about_node = [&]<class Body>(void (*act)(Held &, Body &, const Responder &)) {
        auto body = node::decode<Body>(packet.bytes);
        if (!body)
            return false;
        if (Held *const held = find(*client, body->node, responder)) {
            act(*held, *body, responder);
            held->woken = true;
        }
        return true;
    };
    switch (static_cast<Message>(header->type)) {
    case Message::create: {
        auto body = node::decode<Create>(packet.bytes);
        if (body)
            create(client, std::move(*body), responder);
        return body.has_value();
    }
    case Message::start: {
        auto body = node::decode<Start>(packet.bytes);
        if (body)
            if (Held *const held = find(*client, body->node, responder))
                held->node->start(std::move(body->program), std::move(client->brought), responder);
        return body.has_value();
    }
    case Message::signal:
        return about_node(
            +[](Held &held, Signal &body, const Responder &to) { held.node->signal(body, to); });
    case Message::wait:
        return about_node(+[](Held &held, Wait &body, const Responder &to) { held.node->wait(body, to); });
    case Message::attach:
        return about_node(
            +[](Held &held, Attach &body, const Responder &to) { held.node->attach(body.task, to); });
    case Message::log:
        return about_node(+[](Held &held, Log &body, const Responder &to) { held.node->log(body.task, to); });
    case Message::destroy:
        return about_node(+[](Held &held, Destroy &, const Responder &to) { held.node->destroy(to); });
    case Message::tie: {
        const auto body = node::decode<Tie>(packet.bytes);
        if (body)
            if (Held *const held = find(*client, body->node, responder)) {
                held->tied_to = client;
                held->tie_patience.reset();
                responder.tell(Done{});
            }
        return body.has_value();
    }
    case Message::checkpoint: {
        const auto body = node::decode<Checkpoint>(packet.bytes);
        if (body)
            checkpoint(*client, *body, responder);
        return body.has_value();
    }
    case Message::restore: {
        const auto body = node::decode<Restore>(packet.bytes);
        if (body)
            restore(client, *body, std::move(client->brought), responder);
        return body.has_value();
    }
    case Message::list:
        if (!node::decode<List>(packet.bytes))
            return false;
        list(client, responder);
        return true;
    case Message::join_step:
    case Message::wait_rank:
    case Message::signal_rank:
    case Message::watch_standstill:
        return handle_step(client, packet, static_cast<Message>(header->type), responder);
    case Message::begin_script:
    case Message::hold_script:
        return handle_script(client, packet, static_cast<Message>(header->type), responder);
    case Message::open_door:
    case Message::find_steps:
    case Message::step_runs:
    case Message::input_read:
    case Message::save_steps:
    case Message::begin_apart:
    case Message::watch_saves:
    case Message::commands_rest:
        return handle_commands(client, packet, static_cast<Message>(header->type), responder);
    default:
        return handle_job(client, packet, static_cast<Message>(header->type), responder);
    }
}

Expected<void> Server::room_for_one_more(bool for_root, const node::Spec &spec) const {
    const auto of_same = std::ranges::count_if(
        nodes_, [&](const auto &entry) { return entry.second.node->record().spec.uid == spec.uid; });
    if (auto why =
            budgets().refusal(Budget::nodes, for_root ? 0 : spec.uid, static_cast<std::uint64_t>(of_same)))
        return failure("make the virtual node", quote(spec.name), *why, EDQUOT);
    // The node takes it when it is there.
    if (auto memory = ProgramMemory::take(spec.uid, memory_of(spec)); !memory)
        return propagate(memory);
    return {};
}

void Server::create(const std::shared_ptr<Client> &client, Create request, const Responder &responder) {
    node::Spec &spec = request.spec;
    if (spec.name.empty())
        do
            spec.name = fmt::format("{}{}", client->credentials.prefix(), ++last_name_);
        while (nodes_.contains(spec.name));
    if (spec.hostname.empty())
        spec.hostname = spec.name;
    if (spec.address.empty())
        spec.address = node::kDefaultAddress;
    if (auto may = client->credentials.may_make(spec); !may)
        return responder.refuse(may.error());
    if (auto room = room_for_one_more(client->credentials.is_root(), spec); !room)
        return responder.refuse(room.error());
    auto cgroups = client->credentials.cgroups();
    if (!cgroups)
        return responder.refuse(cgroups.error());
    if (auto may = client->credentials.may_run_here(options_.agents.run_without_slurm, *cgroups); !may)
        return responder.refuse(may.error());
    make_checked(std::move(spec), std::move(*cgroups), {}, {}, client, nullptr, responder);
}

// What an image has of the host: our own programs, what the kernel shows of the machine, and what the site
// says.
Expected<void> Server::choose_shown(node::Spec &spec) const {
    if (!spec.image.any())
        return {};
    if (!options_.containers.enabled)
        return failure("use the image", quote(spec.image.directory),
                       "this cluster has no images (containers.enabled in singularity.yaml)", EPERM);
    spec.shown = {options_.places.libraries.directory.native(), "/sys"};
    for (const auto &one : options_.containers.mounts)
        spec.shown.push_back(one.native());
    // A script that names them all the same, as one for other clusters does, has what it wants.
    std::erase_if(spec.image.mounts, [&](const node::ImageMount &mount) {
        return mount.source == mount.target && !mount.read_only &&
               std::ranges::any_of(options_.containers.mounts,
                                   [&](const auto &shown) { return is_in(mount.target, shown.native()); });
    });
    return {};
}

void Server::make_checked(node::Spec spec, std::string cgroups, ProxyShare share,
                          std::optional<Rendezvous> rendezvous, const std::shared_ptr<Client> &owner,
                          Home home, const Responder &responder) {
    if (auto chosen = choose_shown(spec); !chosen)
        return responder.refuse(chosen.error());
    if (auto checked = node::check_spec(spec); !checked)
        return responder.refuse(checked.error());
    if (nodes_.contains(spec.name) || waiting_nodes_.contains(spec.name))
        return responder.refuse(
            {"make the virtual node", quote(spec.name), "there is one of that name", EEXIST});
    if (spec.devices != 0) {
        if (const auto proxyd = options_.places.libraries.proxyd(); access(proxyd.c_str(), X_OK) != 0)
            return responder.refuse(errno_error("run", proxyd.native()));
        for (auto &entry : device_environment(options_.places.libraries, spec.devices))
            spec.environment.push_back(std::move(entry));
    }
    if (auto given = local_trees_.give(spec); !given)
        return responder.refuse(given.error());
    if (auto checked = node::check_image(spec); !checked) // now that it has its local directories
        return responder.refuse(checked.error());
    const node::MakePlan plan{.spec = spec,
                              .room = node::Room(options_.places.state, spec.name),
                              .init = options_.places.libraries.init(),
                              .cgroups = std::move(cgroups),
                              .hide_unsavable = options_.elastic.hide_unsavable,
                              .make_sources = LocalTrees::maker(spec),
                              .network = std::move(home)};
    auto prepared = plan.room.prepare(spec);
    auto made = prepared ? LiveNode::make(plan, share, std::move(rendezvous), options_.places, responder)
                         : Expected<LiveNode>(std::unexpected(prepared.error()));
    if (!made) {
        if (auto removed = plan.room.remove(); !removed)
            kLog.error("{}", removed.error().message());
        return responder.refuse(made.error());
    }
    Held held{.node = std::make_unique<LiveNode>(std::move(*made)),
              .tied_to = {},
              .tie_patience = {},
              .woken = false};
    if (spec.tied)
        held.tied_to = owner;
    nodes_.emplace(spec.name, std::move(held));
}

void Server::checkpoint(const Client &client, const Checkpoint &request, const Responder &responder) {
    if (jobs_->find(request.node)) {
        if (const auto job = find_job(client, request.node, responder))
            job->checkpoint(request.go_on, responder);
        return;
    }
    Held *const held = find(client, request.node, responder);
    if (held == nullptr)
        return;
    if (const auto &job = held->node->record().spec.job; !job.empty())
        return responder.refuse({"save", quote(request.node),
                                 fmt::format("it is a node of the job {}, which is saved as a whole", job),
                                 EINVAL});
    held->node->checkpoint(request.go_on, responder);
    held->woken = true;
}

void Server::list(const std::shared_ptr<Client> &client, const Responder &responder) const {
    Nodes out;
    // Half of what a datagram holds is left for the packet's last line.
    std::size_t size = 0;
    for (const auto &[name, held] : nodes_) {
        if (!client->credentials.may_touch(held.node->record().spec))
            continue;
        auto line = held.node->line();
        node::Writer measure;
        measure(line);
        size += measure.take().size();
        if (size > node::kDatagramLimit / 2) {
            out.complete = false;
            break;
        }
        out.nodes.push_back(std::move(line));
    }
    responder.tell(out);
}

} // namespace singularity::agent
