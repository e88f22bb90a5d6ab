// SPDX-License-Identifier: GPL-2.0-or-later
// How a job comes into being on all of its hosts.
#include "agent/node/rendezvous.hpp"
#include "agent/slurm/slurm_cgroup.hpp"
#include "common/text.hpp"
#include "job.hpp"
#include "job_plan.hpp"
#include "member.hpp"
#include "network/plan.hpp"

#include <algorithm>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr auto kHostsPatience = 90s; // nodes and their device proxies are made; longer than an agent waits
constexpr auto kRestorePatience = 2600s; // longer than the workers have
constexpr auto kStartPatience = 60s;

} // namespace

void Job::ask_all(std::string_view doing, State during, std::chrono::milliseconds patience,
                  const Request &request, const Take &take, const std::function<void()> &then) {
    if (!enter(during))
        return;
    auto all = when_all(where_.size(), [self = shared_from_this(), during, then](Expected<void> outcome) {
        if (self->record_.state() != during)
            return; // it is ending
        if (!outcome)
            return self->end(outcome.error().message());
        then();
    });
    for (const auto &[host, about] : where_)
        hosts_->ask(host, request(host), patience,
                    [self = shared_from_this(), name = host, doing = std::string(doing), take,
                     all](Expected<wire::Envelope> reply) {
                        auto outcome = outcome_of(reply);
                        if (outcome)
                            take(name, *reply);
                        else
                            outcome =
                                failure(doing, quote(name), outcome.error().message(), outcome.error().code);
                        all(std::move(outcome));
                    });
}

void Job::reach() {
    ask_all(
        "reach the agent of", wire::JobRecord::REACHING, setting_->patience,
        [](const std::string & /*host*/) {
            wire::Envelope request;
            request.mutable_ping();
            return request;
        },
        [self = shared_from_this()](const std::string &host, const wire::Envelope & /*reply*/) {
            const auto found = self->hosts_->addresses(host);
            if (!found)
                return;
            self->addresses_[host] = found->theirs;
            if (found->own != 0)
                self->addresses_[self->hosts_->own_host()] = found->own; // by which the others reach us
        },
        [self = shared_from_this()] { self->prepare(); });
}

// Until it is followed: nodes that are made on one host may take longer than others wait for us.
void Job::keep_members() {
    keep_.reset();
    if (record_.state() < wire::JobRecord::PREPARING || record_.state() > wire::JobRecord::STARTING)
        return;
    keep_ = Deadline::after(setting_->patience / 3);
    for (const auto &[host, about] : where_) {
        wire::Envelope request;
        request.mutable_keep_job()->set_job(record_.name());
        hosts_->ask(host, std::move(request), setting_->patience,
                    [](const Expected<wire::Envelope> & /*other requests fail as well*/) {});
    }
}

void Job::prepare() {
    keep_ = Deadline::after(setting_->patience / 3);
    record_.set_mtu(network::kMostMtu);
    auto addresses = addresses_;
    for (const auto &[host, about] : where_)
        addresses.try_emplace(host, 0); // nobody else is to reach it
    ask_all(
        "prepare the network on", wire::JobRecord::PREPARING, setting_->patience,
        [this, addresses](const std::string &host) {
            wire::Envelope request;
            auto &prepare = *request.mutable_prepare_job();
            prepare.set_job(record_.name());
            prepare.set_vni(record_.vni());
            *prepare.mutable_user() = record_.user();
            for (const auto &[other, address] : addresses) {
                if (other == host)
                    prepare.set_local(address);
                else
                    prepare.add_hosts(address);
            }
            if (host == hosts_->own_host())
                prepare.set_cgroups(record_.cgroups());
            prepare.set_step(record_.step());
            if (record_.one_host() && where_.size() == 1 && host == hosts_->own_host())
                prepare.set_network(network_name_of_step(record_.user().uid(), record_.step()));
            prepare.set_of_script(record_.of_script());
            prepare.set_restarts(record_.restarts());
            *prepare.mutable_publish() = record_.publish();
            prepare.set_rendezvous((has_devices() || !record_.step().empty()) &&
                                   host == record_.nodes(0).host());
            return request;
        },
        [self = shared_from_this(), addresses](const std::string &host, const wire::Envelope &reply) {
            if (const auto port = reply.prepared_job().meeting_port(); port != 0 && port <= UINT16_MAX)
                self->rendezvous_ = tcp_address(addresses.at(host), static_cast<std::uint16_t>(port));
            self->record_.set_mtu(std::min(self->record_.mtu(), reply.prepared_job().mtu()));
            if (!self->record_.step().empty())
                self->place_tasks(host, reply.prepared_job());
        },
        [self = shared_from_this()] { self->connect(); });
}

// Hosts of a step are there once.
void Job::place_tasks(const std::string &host, const wire::PreparedJob &prepared) {
    if (!record_.restore().empty()) {
        offers_[host] = {.host = host,
                         .tasks = static_cast<std::uint32_t>(prepared.ranks_size()),
                         .devices = prepared.devices()};
        return;
    }
    for (auto &node : *record_.mutable_nodes())
        if (node.host() == host) {
            *node.mutable_ranks() = prepared.ranks();
            node.set_devices(prepared.devices());
        }
}

// Its ranks stay together as they are; what its hosts have for them is known now.
Expected<void> Job::place_restored() {
    std::vector<Offer> offers;
    for (const auto &host : record_.hosts())
        offers.push_back(offers_[host]);
    return place_nodes(*record_.mutable_nodes(), offers, record_.name());
}

bool Job::has_devices() const {
    return std::ranges::any_of(record_.nodes(), [](const auto &node) { return node.devices() != 0; });
}

void Job::connect() {
    if (has_ended(record_)) // the last time it was run: its tasks hear how
        return end({});
    if (!record_.restore().empty() && !record_.step().empty())
        if (auto placed = place_restored(); !placed)
            return end(placed.error().message());
    if (record_.restore().empty())
        give_requested_devices(*record_.mutable_nodes(), record_.gpus(), is_script(record_.step()));
    for (auto &node : *record_.mutable_nodes())
        node.set_host_address(addresses_[node.host()]);
    if (auto placed = place_ranks(); !placed)
        return end(placed.error().message());
    const auto key = make_rendezvous_key();
    if (!key)
        return end(key.error().message());
    if (has_devices() && rendezvous_.empty())
        return end(fmt::format("host {} does not say where device proxies meet", record_.nodes(0).host()));
    ask_all(
        record_.restore().empty() ? "make nodes on" : "restore nodes on", wire::JobRecord::CONNECTING,
        record_.restore().empty() ? kHostsPatience : kRestorePatience,
        [this, key = *key](const std::string & /*host*/) {
            wire::Envelope request;
            auto &connect = *request.mutable_connect_job();
            connect.set_job(record_.name());
            connect.set_mtu(record_.mtu());
            *connect.mutable_nodes() = record_.nodes();
            connect.set_backend(record_.backend());
            connect.set_rendezvous(rendezvous_);
            connect.set_meeting_key(key.data(), key.size());
            connect.set_checkpoint(record_.restore());
            connect.set_store(record_.store());
            return request;
        },
        [self = shared_from_this()](const std::string & /*host*/, const wire::Envelope &reply) {
            self->record_.mutable_published()->MergeFrom(reply.connected_job().published());
            self->record_.mutable_told()->MergeFrom(reply.connected_job().told());
            self->look_at_watchers();
        },
        [self = shared_from_this()] { self->start(); });
}

// Nodes that are restored stand still until all of them are there: where one cannot be, nothing is done
// twice.
void Job::start() {
    const bool restored = !record_.restore().empty();
    ask_all(
        restored ? "let nodes go on on" : "start tasks on", wire::JobRecord::STARTING,
        restored ? kRestorePatience : kStartPatience,
        [this](const std::string & /*host*/) {
            wire::Envelope request;
            auto &start = *request.mutable_start_job();
            start.set_job(record_.name());
            *start.mutable_program() = record_.program();
            return request;
        },
        [](const std::string & /*host*/, const wire::Envelope & /*reply*/) {},
        [self = shared_from_this(), restored] {
            if (restored)
                self->has_been_restored();
            else
                self->has_been_started();
        });
}

void Job::has_been_started() {
    if (!enter(wire::JobRecord::RUNNING))
        return;
    std::vector<std::string> words{fmt::format("ranks={}", ranks()),
                                   fmt::format("elastic={}", record_.elastic()), "unsavable="};
    // What a script's steps had is as in the run before, if they go on.
    if (!is_script(record_.step()))
        words.emplace_back("memory=");
    // A job that was requeued works again from now on, also where its step begins anew.
    if (record_.restarts() > 0)
        words.push_back(fmt::format("resumed={}", std::time(nullptr)));
    note(std::move(words));
    note_places();
    follow_all();
}

} // namespace singularity::agent
