// SPDX-License-Identifier: GPL-2.0-or-later
// A checkpoint of a job, as its coordinator makes it. A worker of its own begins it in the store; the agents
// of all hosts do the same steps (peers' SaveJob), each when all have done the one before: their nodes are
// prepared, the ranks come to the gates of the barrier in rounds, all nodes stand still and are saved, and
// run again or not; when all parts are in the store the worker commits, and only then does it exist. Before
// that whatever fails makes all nodes run on as they were. Without I/O: nothing blocks.
#pragma once

#include "agent/protocol/agent_messages.hpp"
#include "agent/worker/paths.hpp"
#include "agent/worker/worker.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "host_asker.hpp"
#include "let_go.hpp"
#include "peers/peer_messages.pb.h"
#include "proxy/barrier/coordinator.hpp"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>

namespace singularity::agent {

class JobSave : public std::enable_shared_from_this<JobSave> {
  public:
    struct Plan {
        Libraries libraries;
        WorkSaveJob begin;
        std::vector<std::string> hosts;
        bool go_on = false; // the nodes run on as soon as all of them have been saved
    };
    struct Owner {
        // Before any node is touched: an agent that comes again must know of it.
        std::function<Expected<void>(const std::string &checkpoint)> on_begun;
        // All ranks have come to the gates, having issued so much.
        std::function<void(const barrier::Total &)> on_stopped;
        // How much of each rank's output is written down.
        std::function<std::vector<std::uint64_t>()> outputs;
        std::function<void(const Progress &)> on_progress;
        // Exactly once, unless it is dropped. All nodes run on, unless it succeeded and they are not to. Code
        // ENOTRECOVERABLE: nobody knows whether the checkpoint exists, and the nodes stand still.
        std::function<void(Expected<ImageReport>)> on_end;
    };
    [[nodiscard]] static Expected<std::shared_ptr<JobSave>> start(HostAsker &hosts, Plan plan, Owner owner);
    // One that an earlier agent had begun: it is looked up whether it exists.
    [[nodiscard]] static Expected<std::shared_ptr<JobSave>> settle(HostAsker &hosts, Plan plan, Owner owner,
                                                                   const std::string &checkpoint);
    // The job ends: nobody is told.
    void drop();

    void watch(std::vector<pollfd> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const {
        return letting_go_ ? letting_go_->next_deadline() : again_;
    }
    void handle();

  private:
    using Step = peers::wire::SaveJob::Step;
    using Fill = std::function<void(const std::string &host, peers::wire::SaveJob &request)>;
    using Take = std::function<Expected<void>(const std::string &host, const peers::wire::SavedJob &reply)>;

    JobSave(HostAsker &hosts, Plan plan, Owner owner)
        : hosts_(&hosts), plan_(std::move(plan)), owner_(std::move(owner)) {}

    [[nodiscard]] Expected<void> begin();
    void take_begun(const std::string &checkpoint);
    void ask_all(Step step, std::string_view doing, std::chrono::milliseconds patience, const Fill &fill,
                 const Take &take, const std::function<void()> &then);
    void round();
    void decide();
    void hold();
    void store();
    void commit();
    [[nodiscard]] Expected<void> look_up();
    void worker_died();
    void finished(ImageReport report);
    void fail(Error error);
    void let_go(std::function<void()> then);
    void end(Expected<ImageReport> outcome);

    HostAsker *hosts_;
    Plan plan_;
    Owner owner_;
    std::optional<Worker> worker_;
    std::string checkpoint_;
    std::optional<barrier::Coordinator> coordinator_;
    barrier::Coordinator::Decision decision_;
    std::map<barrier::Key, std::string> where_; // processes
    std::vector<barrier::Report> reports_;
    Deadline barrier_deadline_ = Deadline::after({});
    WorkParts parts_;
    ImageReport sums_;
    Deadline::Clock::time_point begun_;
    std::optional<Deadline> again_; // the next attempt
    std::shared_ptr<LetGo> letting_go_;
    int attempt_ = 0;
    unsigned given_up_ = 0;   // attempts: answers to their steps are of no interest any more
    bool committing_ = false; // its worker may have done it, whatever it says
    bool settling_ = false;
    bool over_ = false;
};

} // namespace singularity::agent
