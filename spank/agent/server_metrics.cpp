// SPDX-License-Identifier: GPL-2.0-or-later
// The file with the agent's metrics.
#include "common/log.hpp"
#include "metrics.hpp"
#include "server.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr log::Channel kLog("agent");
constexpr auto kBetweenMetrics = 15s;
using NodeState = LiveNode::State;
constexpr std::array kNodeStates{NodeState::preparing, NodeState::restoring, NodeState::making,
                                 NodeState::joining,   NodeState::running,   NodeState::saving,
                                 NodeState::ending};
constexpr std::array kJobStates{wire::JobRecord::REACHING,   wire::JobRecord::PREPARING,
                                wire::JobRecord::CONNECTING, wire::JobRecord::STARTING,
                                wire::JobRecord::RUNNING,    wire::JobRecord::ENDING,
                                wire::JobRecord::ENDED};

// Who reads the file sees all of the text before or all of this. Nobody needs it after a crash of the
// machine: it is not synced, since a disk that is busy would hold up the agent's loop.
Expected<void> replace_file(const std::filesystem::path &path, const std::string &text) {
    const std::filesystem::path beside = path.native() + ".new";
    unlink(beside.c_str()); // of an agent that died
    auto file = open_file(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (!file)
        return propagate(file);
    const auto written = ::write(file->get(), text.data(), text.size());
    if (std::cmp_not_equal(written, text.size()) || fchmod(file->get(), 0644) != 0) {
        auto error = written >= 0 ? errno_error("write", beside.native(), ENOSPC)
                                  : errno_error("write", beside.native());
        unlink(beside.c_str());
        return std::unexpected(std::move(error));
    }
    if (std::rename(beside.c_str(), path.c_str()) != 0)
        return std::unexpected(errno_error("replace", path.native()));
    return {};
}

} // namespace

Gauges Server::gauges() const {
    Gauges out{.version = SINGULARITY_VERSION, .started = started_, .nodes = {}, .jobs = {}, .running = {}};
    for (const auto state : kNodeStates)
        out.nodes.emplace(words(state), 0);
    for (const auto state : kJobStates)
        out.jobs.emplace(words(state), 0);
    for (const auto &[name, held] : nodes_)
        ++out.nodes[std::string(words(held.node->state()))];
    for (const auto &[name, job] : jobs_->all()) {
        const auto &record = job->record();
        ++out.jobs[std::string(words(record.state()))];
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
    const auto written = replace_file(options_.agents.metrics, metrics_text(counters(), gauges()));
    const auto trouble = written ? std::string() : written.error().message();
    if (!trouble.empty() && trouble != metrics_trouble_)
        kLog.error("{}; it is not said again while that lasts", trouble);
    metrics_trouble_ = trouble;
}

} // namespace singularity::agent
