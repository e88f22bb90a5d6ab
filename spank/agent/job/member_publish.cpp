// SPDX-License-Identifier: GPL-2.0-or-later
// Ports of a job's nodes that are reached from outside: at which ports of this host. The job runs also where
// that cannot be: its user reads why.
#include "agent/limits/share.hpp"
#include "agent/log.hpp"
#include "common/port_range.hpp"
#include "job_plan.hpp"
#include "member.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h> // join, since fmt 11

namespace singularity::agent {

namespace wire = peers::wire;

std::vector<std::uint16_t> Member::wanted_ports() const {
    if (step_)
        return step_->plan().publish;
    std::vector<std::uint16_t> out;
    for (const auto port : record_.prepare().publish())
        out.push_back(static_cast<std::uint16_t>(std::min<std::uint32_t>(port, UINT16_MAX)));
    return out;
}

bool Member::publishes() const { return !wanted_ports().empty() && setting_->publish.any(); }

void Member::tell_user(std::string line) {
    if (step_)
        step_->say(std::move(line));
    else
        for_user_.push_back(std::move(line));
}

void Member::publish(const wire::JobNode &one, std::function<void(Expected<void>)> then) {
    const auto ports = wanted_ports();
    if (ports.empty())
        return then({});
    const auto tell = [this, &one, ports](const Error &why) {
        const auto line =
            fmt::format("nobody outside reaches port {} of {} on {}: {}", fmt::join(ports, ", "),
                        one.hostname().empty() ? one.name() : one.hostname(), setting_->host, why.why);
        kLog.warning("{}: {}", job(), line);
        tell_user(line);
    };
    if (!publishes()) { // what was submitted when the site allowed it goes on
        tell({"publish", "ports", "this host publishes none (network.publish in singularity.yaml)", EPERM});
        return then({});
    }
    const auto uid = record_.prepare().user().uid();
    if (auto why = no_room_for(Budget::ports, uid, ports.size())) {
        tell({"publish", "ports", *std::move(why), EDQUOT});
        return then({});
    }
    // Given back where nothing is published.
    auto held = std::make_shared<Share>(Budget::ports, uid, ports.size());
    network_->ask<network::PublishedPorts>(
        network::PublishRequest{
            .plan = {.node = place_of(one), .ports = ports, .range = setting_->publish, .owner = job()}},
        [self = shared_from_this(), &one, tell, held = std::move(held),
         then = std::move(then)](const Expected<network::PublishedPorts> &published) {
            if (!published) {
                tell(published.error());
                return then({});
            }
            self->published_.push_back(std::move(*held));
            self->has_published(one, published->ports);
            then(self->write());
        });
}

void Member::has_published(const wire::JobNode &one, const std::vector<network::Published> &ports) {
    std::string line; // one: a step has few
    for (const auto &port : ports) {
        auto *const about = record_.add_published();
        about->set_node(one.number());
        about->set_port(port.port);
        about->set_at(port.at);
        line += line.empty() ? fmt::format("port {} of {} is reached", port.port,
                                           one.hostname().empty() ? one.name() : one.hostname())
                             : fmt::format(", port {}", port.port);
        line += fmt::format(" at {}:{}", setting_->host, port.at);
    }
    kLog.info("{}: {}", job(), line);
    tell_user(std::move(line));
}

void Member::connected(const Answer &answer, const Expected<void> &outcome) const {
    if (!outcome)
        return answer(fault(outcome.error()));
    wire::Envelope reply;
    *reply.mutable_connected_job()->mutable_published() = record_.published();
    for (const auto &line : for_user_)
        reply.mutable_connected_job()->add_told(line);
    answer(std::move(reply));
}

} // namespace singularity::agent
