// SPDX-License-Identifier: GPL-2.0-or-later
// The end of a checkpoint, or of what was to be one: the agents of all hosts of a job hear that nobody is at
// its nodes any more, so that they run. One that has not heard it leaves its nodes standing still, so it is
// told again. Without I/O.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "host_asker.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace singularity::agent {

class LetGo : public std::enable_shared_from_this<LetGo> {
  public:
    struct Patience {
        std::chrono::milliseconds pause{2000};                       // before a host is told again
        std::chrono::milliseconds tries{std::chrono::seconds(60)};   // for how long
        std::chrono::milliseconds answer{std::chrono::seconds(700)}; // longer than workers have
    };
    // then: once, when all have answered. Neither a host that never does, which its job loses before long,
    // nor a node that cannot go on is for the checkpoint to deal with. hosts: not empty.
    [[nodiscard]] static std::shared_ptr<LetGo> start(HostAsker &responder, const std::string &job,
                                                      const std::vector<std::string> &hosts,
                                                      std::function<void()> then, Patience patience);
    [[nodiscard]] static std::shared_ptr<LetGo> start(HostAsker &responder, const std::string &job,
                                                      const std::vector<std::string> &hosts,
                                                      std::function<void()> then) {
        return start(responder, job, hosts, std::move(then), Patience());
    }
    // Nobody is told any more.
    void drop() { left_.clear(); }

    [[nodiscard]] const std::optional<Deadline> &next_deadline() const { return again_; }
    void handle();

  private:
    LetGo(HostAsker &responder, std::string job, std::function<void()> then, Patience patience)
        : asker_(&responder), job_(std::move(job)), then_(std::move(then)), patience_(patience),
          until_(Deadline::after(patience.tries)) {}
    void tell(const std::string &host);
    void hear(const std::string &host, const Expected<peers::wire::Envelope> &reply);

    HostAsker *asker_;
    std::string job_;
    std::function<void()> then_;
    Patience patience_;
    Deadline until_;
    std::set<std::string> left_;   // hosts that have not answered
    std::set<std::string> silent_; // those of them that are told again
    std::optional<Deadline> again_;
};

} // namespace singularity::agent
