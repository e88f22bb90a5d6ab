// SPDX-License-Identifier: GPL-2.0-or-later
// A host's part of a job has a network of its own, or a share of one: that of the script of a job of Slurm's
// and of its steps, if the job has this host alone.
#include "agent/log.hpp"
#include "agent/node/adoption.hpp"
#include "agent/slurm/slurm_cgroup.hpp"
#include "job_files.hpp"
#include "job_plan.hpp"
#include "member.hpp"
#include "node/network.hpp"

#include <cerrno>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>

namespace singularity::agent {

namespace wire = peers::wire;

Expected<SharedNetworks::Share> Member::take_network(const MemberSetting &setting,
                                                     const wire::PrepareJob &request) {
    if (request.network().empty()) {
        auto own = NetworkClient::start(setting.libraries, setting.members / request.job());
        if (!own)
            return propagate(own);
        return SharedNetworks::Share{.network = std::make_shared<NetworkClient>(std::move(*own)),
                                     .directory = {}};
    }
    // Its addresses are a job's of Slurm's, and who asks is its only host.
    if (request.step().empty() || request.hosts_size() != 0 ||
        request.network() != network_name_of_step(request.user().uid(), request.step()))
        return failure("share", fmt::format("the network {}", request.network()),
                       "the job is not on one host, or it is another's", EINVAL);
    return setting.networks->take(request.network());
}

Expected<SharedNetworks::Share> Member::adopt_network(const MemberSetting &setting,
                                                      const wire::MemberRecord &record) {
    const auto &directory = record.network();
    auto shared = directory.empty() ? Expected<SharedNetworks::Share>()
                                    : setting.networks->adopt(record.prepare().network(), directory);
    if (!directory.empty() && shared)
        return shared;
    auto own = directory.empty() ? NetworkClient::adopt(setting.members / record.prepare().job())
                                 : Expected<NetworkClient>(std::unexpected(shared.error()));
    if (!own && is_shortage(own.error().code))
        return propagate(own);
    // Without it the nodes are without a network, or gone: the coordinator hears of that.
    return SharedNetworks::Share{
        .network = std::make_shared<NetworkClient>(own ? std::move(*own) : NetworkClient::none()),
        .directory = directory};
}

void Member::prepare_network(std::uint16_t meeting_port, Answer answer) {
    const auto &request = record_.prepare();
    const bool shared = !network_directory_.empty();
    // Whoever else comes to one that is shared may publish ports.
    network::Prepare plan{.vni = request.vni(),
                          .port = setting_->vxlan_port,
                          .local = request.local(),
                          .hosts = {request.hosts().begin(), request.hosts().end()},
                          .way_out = setting_->way_out,
                          .way_in = shared ? setting_->publish.any() : publishes(),
                          .shared = shared};
    network_->ask<network::Prepared>(network::PrepareRequest{.plan = std::move(plan)},
                                     [answer = std::move(answer), meeting_port,
                                      step = step_](const Expected<network::Prepared> &prepared) {
                                         if (!prepared)
                                             return answer(fault(prepared.error()));
                                         wire::Envelope reply;
                                         if (step) {
                                             for (const auto task : step->tasks())
                                                 reply.mutable_prepared_job()->add_ranks(task);
                                             reply.mutable_prepared_job()->set_devices(step->plan().devices);
                                         }
                                         reply.mutable_prepared_job()->set_mtu(prepared->mtu);
                                         reply.mutable_prepared_job()->set_meeting_port(meeting_port);
                                         answer(std::move(reply));
                                     });
}

void Member::find_homes(std::function<void(Expected<Homes>)> then) {
    if (network_directory_.empty())
        return then(Homes());
    auto homes = std::make_shared<Homes>();
    const auto own = own_nodes();
    auto all = when_all(own.size(), [homes, then = std::move(then)](const Expected<void> &outcome) {
        return outcome ? then(std::move(*homes)) : then(std::unexpected(outcome.error()));
    });
    for (const auto *const one : own) {
        auto address = node::parse_address(one->address());
        if (!address) {
            all(propagate(address));
            continue;
        }
        network_->ask_for_descriptor(
            network::PlaceRequest{.node = place_of(*one), .address = ntohl(address->address)},
            [homes, all, self = shared_from_this(), one](Expected<UniqueFd> home) {
                if (!home)
                    return all(propagate(home));
                (*homes)[one->name()] = std::make_shared<const UniqueFd>(std::move(*home));
                all({});
            });
    }
}

void Member::give_up_network() {
    leave_network();
    if (network_.use_count() != 1)
        return;
    network_->end();
    if (!network_directory_.empty())
        setting_->networks->remove(network_directory_);
}

void Member::leave_network() {
    // Of the next run nothing may be where something of this one still is: nobody comes when the script goes.
    if (!network_directory_.empty())
        setting_->networks->leave({.network = network_, .directory = network_directory_},
                                  is_script(record_.prepare().step()));
}

void Member::end_network() {
    if (!network_directory_.empty() && network_.use_count() != 1) {
        network_ = std::make_shared<NetworkClient>(NetworkClient::none());
        return has_ended();
    }
    // Whoever takes its place here makes one of the same name.
    network_->ask<network::Done>(network::EndRequest{},
                                 [self = shared_from_this()](const Expected<network::Done> &ended) {
                                     if (!ended && !self->network_->lost())
                                         kLog.error("{}", ended.error().message());
                                     if (!self->network_directory_.empty())
                                         self->setting_->networks->remove(self->network_directory_);
                                     self->has_ended();
                                 });
}

} // namespace singularity::agent
