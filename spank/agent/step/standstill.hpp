// SPDX-License-Identifier: GPL-2.0-or-later
// What the wrapper of a rank has to do outside of it at the moment that a checkpoint holds, while the rank
// stands still: to see how much of its output is in its file by then.
#pragma once

#include "agent/node/live_node.hpp"
#include "agent/protocol/agent_messages.hpp"
#include "common/deadline.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace singularity::agent {

class Standstill {
  public:
    explicit Standstill(std::chrono::milliseconds patience = std::chrono::seconds(5)) : patience_(patience) {}

    // A wrapper hears of the next one. It has done what it had to for the one before. left: it is gone.
    void watch(const Responder &responder, std::function<bool()> left);
    // It is time. `then` is called when the wrapper asks to watch again; at once if none does; and, with a
    // word in the log, when it has left, or has not asked in time: a checkpoint does not depend on it.
    void tell(const std::string &step, const StandsStill &what, std::function<void()> then);
    void look();
    [[nodiscard]] const std::optional<Deadline> &until() const { return until_; }

  private:
    void settle();

    std::chrono::milliseconds patience_;
    std::optional<Responder> watcher_;
    std::function<bool()> left_;
    std::string step_;
    std::function<void()> then_;
    std::optional<Deadline> until_;
};

} // namespace singularity::agent
