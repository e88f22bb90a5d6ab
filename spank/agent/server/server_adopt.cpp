// SPDX-License-Identifier: GPL-2.0-or-later
// Nodes and jobs of an earlier agent. They live on whatever this one can do: nothing of theirs is removed or
// ended before it is known that it is over.
#include "agent/log.hpp"
#include "agent/worker/removal.hpp"
#include "server.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kTiePatience = 30s;  // for the owners of tied nodes and jobs to come again
constexpr auto kBeforeOthers = 10s; // less than anybody waits for an agent that is started again

} // namespace

Expected<void> Server::look_for_earlier() {
    auto names = names_in(options_.places.state);
    if (!names)
        return propagate(names);
    waiting_nodes_ = std::move(*names);
    adopt_before_others_ = Deadline::after(kBeforeOthers);
    return jobs_->look_for_earlier();
}

bool Server::adopt_node(const std::string &name) {
    const node::Room room(options_.places.state, name);
    auto adopted = LiveNode::adopt(room, options_.places);
    if (adopted) {
        kLog.info("{}: found again", name);
        Held held{.node = std::make_unique<LiveNode>(std::move(*adopted)),
                  .tied_to = {},
                  .tie_patience = {},
                  .woken = true};
        if (held.node->record().spec.tied)
            held.tie_patience = Deadline::after(kTiePatience);
        nodes_.emplace(name, std::move(held));
        adopted_nodes_.insert(name);
        return true;
    }
    switch (verdict_of(adopted.error())) {
    case Verdict::gone:
        kLog.warning("{}: nothing of it is left; its files are removed", name);
        if (auto removed = room.remove(); !removed)
            kLog.error("{}", removed.error().message());
        return true;
    case Verdict::broken: // not ours to judge
        kLog.error("{}", adopted.error().message());
        return true;
    case Verdict::waits:
        break;
    }
    kLog.error("{}; the virtual node runs on, and its record is looked at again", adopted.error().message());
    return false;
}

void Server::adopt_jobs() {
    for (const auto &job : jobs_->adopt_waiting())
        if (job->record().tied())
            job_ties_[job->record().name()] = {.owner = {}, .patience = Deadline::after(kTiePatience)};
    // Of a job whose record was lost nobody would ever ask.
    for (const auto &name : adopted_nodes_)
        if (const auto found = nodes_.find(name); found != nodes_.end())
            if (const auto &job = found->second.node->record().spec.job;
                !job.empty() && !jobs_->is_member(job)) {
                kLog.warning("{}: nothing is known of its job, {}; it ends", name, job);
                found->second.node->destroy(std::nullopt);
            }
}

void Server::adopt_waiting() {
    const auto before = waiting();
    {
        const auto reserve = Reserve::take();
        if (reserve) {
            std::erase_if(waiting_nodes_, [this](const std::string &name) { return adopt_node(name); });
            adopt_jobs();
        } else {
            kLog.error("{}: {} records of an earlier agent are looked at later", reserve.error().message(),
                       before);
        }
    }
    const auto left = waiting();
    if (left != 0) {
        adopt_again_.later();
        kLog.error("{} records of virtual nodes and jobs of an earlier agent could not be looked at; all of "
                   "them are kept. If this lasts, raise LimitNOFILE in singularityd.service",
                   left);
        if (adopt_before_others_ && !adopt_before_others_->expired())
            accept_again_ = adopt_again_.at();
        return;
    }
    if (adopt_again_.at())
        kLog.info("all records of the earlier agent have been looked at");
    adopt_again_.over();
    adopted_nodes_.clear();
    // Of nodes that have gone while there was no agent.
    if (auto cleared = clear_staging(options_.places.staging,
                                     [this](const std::string &name) { return nodes_.contains(name); });
        !cleared)
        kLog.error("{}", cleared.error().message());
}

} // namespace singularity::agent
