// SPDX-License-Identifier: GPL-2.0-or-later
// Ports of a job's nodes that are reached from outside: at which ports of this host. The job runs also where
// that cannot be: its user reads why.
#include "agent/limits/share.hpp"
#include "agent/log.hpp"
#include "common/port_range.hpp"
#include "member.hpp"

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h> // join, since fmt 11

namespace singularity::agent {

namespace wire = peers::wire;

bool Member::publishes() const { return step_ && !step_->plan().publish.empty() && setting_->publish.any(); }

void Member::publish(const wire::JobNode &one, std::function<void(Expected<void>)> then) {
    if (!step_ || step_->plan().publish.empty())
        return then({});
    const auto &ports = step_->plan().publish;
    const auto tell = [this, &one, &ports](const Error &why) {
        const auto line =
            fmt::format("nobody outside reaches port {} of {} on {}: {}", fmt::join(ports, ", "),
                        one.hostname().empty() ? one.name() : one.hostname(), setting_->host, why.why);
        kLog.warning("{}: {}", job(), line);
        step_->say(line);
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
    network_.ask<network::PublishedPorts>(
        network::PublishRequest{.plan = {.node = place_of(one), .ports = ports, .range = setting_->publish}},
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
    step_->say(std::move(line));
}

void Member::connected(const Answer &answer, const Expected<void> &outcome) const {
    if (!outcome)
        return answer(fault(outcome.error()));
    wire::Envelope reply;
    *reply.mutable_connected_job()->mutable_published() = record_.published();
    answer(std::move(reply));
}

} // namespace singularity::agent
