// SPDX-License-Identifier: GPL-2.0-or-later
// A node that a client wants from a checkpoint: a worker finds out which it is.
#include "common/log.hpp"
#include "common/text.hpp"
#include "server.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

constexpr log::Channel kLog("agent");
constexpr std::ptrdiff_t kFindingsOfOne = 8; // each is a process of root's

} // namespace

void Server::restore(const std::shared_ptr<Client> &client, const Restore &request, node::Descriptors given,
                     const Asker &asker) {
    if (given.size() != 0 && given.size() != 3)
        return asker.refuse({"restore", quote(request.what),
                             fmt::format("{} descriptors came with it", given.size()), EINVAL});
    const auto uid = client->sender.uid();
    const auto of_same =
        std::ranges::count_if(findings_, [&](const auto &one) { return one->client->sender.uid() == uid; });
    if (!client->sender.is_root() && of_same >= kFindingsOfOne)
        return asker.refuse(
            {"restore", quote(request.what),
             fmt::format("uid {} restores {} at a time already; try again later", uid, of_same), EAGAIN});
    auto cgroups = client->sender.cgroups();
    if (!cgroups)
        return asker.refuse(cgroups.error());
    auto worker =
        Worker::start(options_.places.libraries,
                      WorkRestore{.what = request.what, .uid = client->sender.uid(), .cgroups = *cgroups});
    if (!worker)
        return asker.refuse(worker.error());
    findings_.push_back(std::make_unique<Finding>(Finding{.worker = std::move(*worker),
                                                          .client = client,
                                                          .asker = asker,
                                                          .cgroups = std::move(*cgroups),
                                                          .proxies = request.proxies,
                                                          .given = std::move(given)}));
}

void Server::read_finding(Finding &finding) {
    node::Packet packet;
    while (!finding.over) {
        const auto received = finding.worker.receive(packet);
        if (received == node::Received::nothing)
            return;
        if (received == node::Received::packet) {
            if (const auto progress = node::decode<Progress>(packet.bytes)) {
                finding.asker.tell(*progress);
                continue;
            }
            if (auto found = node::decode<WorkFound>(packet.bytes)) {
                if (auto restored = restore_found(finding, std::move(*found)); !restored)
                    finding.asker.refuse(restored.error());
            } else if (const auto failed = node::decode<WorkFailed>(packet.bytes)) {
                finding.asker.tell(failed->error);
            }
        } else {
            finding.asker.refuse(
                {"restore", "", "the process that looks for the checkpoint has died", ECHILD});
        }
        finding.over = true;
    }
}

Expected<void> Server::restore_found(Finding &finding, WorkFound &&found) {
    node::Spec &spec = found.record.spec;
    const auto refuse = [&](std::string why, int code) {
        return failure("restore", quote(spec.name), std::move(why), code);
    };
    if (auto checked = node::check_spec(spec); !checked)
        return checked;
    const auto &sender = finding.client->sender;
    if (auto may = sender.may_make(spec); !may)
        return may;
    if (nodes_.contains(spec.name))
        return refuse("there is a virtual node of that name", EEXIST);
    if (auto room = room_for_one_more(sender.is_root(), spec); !room)
        return room;
    if (finding.proxies > spec.devices)
        return refuse(fmt::format("it has {} devices: {} proxies are more", spec.devices, finding.proxies),
                      EINVAL);
    if (spec.tied && finding.given.size() == 0 && !found.record.given.empty())
        return refuse("its program runs in the foreground: restore it without --detach", EINVAL);
    // A program that nobody has waited for does not begin to be waited for.
    spec.tied = spec.tied && finding.given.size() != 0;
    found.record.checkpoint = found.checkpoint;
    found.record.periodic = found.periodic ? found.checkpoint : std::string();
    const node::Room room(options_.places.state, spec.name);
    const std::string name = spec.name;
    auto prepared = room.prepare(spec);
    auto restored = prepared
                        ? LiveNode::restore({.record = std::move(found.record),
                                             .room = room,
                                             .cgroups = finding.cgroups,
                                             .proxies = finding.proxies != 0 ? finding.proxies : spec.devices,
                                             .worker = std::move(finding.worker),
                                             .given = std::move(finding.given)},
                                            options_.places, finding.asker)
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
