// SPDX-License-Identifier: GPL-2.0-or-later
// The file with the agent's metrics.
#include "agent/limits/metrics.hpp"
#include "agent/log.hpp"
#include "common/replace_file.hpp"
#include "server.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <utility>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr auto kBetweenMetrics = 15s;
using NodeState = LiveNode::State;
constexpr std::array kNodeStates{NodeState::preparing, NodeState::restoring, NodeState::making,
                                 NodeState::joining,   NodeState::running,   NodeState::saving,
                                 NodeState::ending};
constexpr std::array kJobStates{wire::JobRecord::REACHING,   wire::JobRecord::PREPARING,
                                wire::JobRecord::CONNECTING, wire::JobRecord::STARTING,
                                wire::JobRecord::RUNNING,    wire::JobRecord::ENDING,
                                wire::JobRecord::ENDED};

} // namespace

Gauges Server::gauges() const {
    Gauges out{.version = SINGULARITY_VERSION,
               .started = started_,
               .nodes = {},
               .jobs = {},
               .over_budget = budgets().refusals(),
               .waiting = waiting(),
               .running = {},
               .held = {}};
    for (const auto state : kNodeStates)
        out.nodes.emplace(to_string(state), 0);
    for (const auto state : kJobStates)
        out.jobs.emplace(to_string(state), 0);
    for (const auto &[name, one] : nodes_)
        ++out.nodes[std::string(to_string(one.node->state()))];
    std::ranges::transform(kShared, out.held.begin(), held);
    for (const auto &[name, job] : jobs_->all()) {
        const auto &record = job->record();
        ++out.jobs[std::string(to_string(record.state()))];
        if (record.state() == wire::JobRecord::RUNNING)
            out.running.push_back({.name = name,
                                   .started = static_cast<std::time_t>(record.made()),
                                   .every_s = record.every(),
                                   .saved = time_of_checkpoint(record.checkpoint())});
    }
    return out;
}

void Server::write_metrics() {
    if (!next_metrics_ || !next_metrics_->expired())
        return;
    next_metrics_ = Deadline::after(kBetweenMetrics);
    const auto written =
        replace_file(options_.agents.metrics, metrics_text(counters(), gauges()), 0644, Durable::kNo);
    const auto trouble = written ? std::string() : written.error().message();
    if (!trouble.empty() && trouble != metrics_trouble_)
        kLog.error("{}; it is not said again while that lasts", trouble);
    metrics_trouble_ = trouble;
}

} // namespace singularity::agent
