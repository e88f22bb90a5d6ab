// SPDX-License-Identifier: GPL-2.0-or-later
// What a wrapper does beside looking after its rank, in the same poll loop.
#pragma once

#include "agent/protocol/client.hpp"
#include "common/deadline.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

namespace singularity::task {

class Companion {
  public:
    virtual ~Companion() = default;
    // To be polled beside the connection to the agent.
    virtual void watch(std::vector<pollfd> &fds) const = 0;
    [[nodiscard]] virtual std::optional<Deadline> next_deadline() const = 0;
    // All that can be done without waiting.
    virtual void work() = 0;
    // The rank's connection to the agent, from now on. What was asked for on the one before is not answered.
    virtual void connected(std::shared_ptr<agent::Client> client) = 0;
    // The rank runs.
    virtual void runs() = 0;
    // Slurm has told the task to end.
    virtual void told_to_end() = 0;
    // The rank is there, and nothing that it writes has been passed on yet. checkpoint: it goes on from; or
    // empty: it has begun.
    virtual void has_come(const std::string & /*checkpoint*/) {}
    // The rank stands still: all that it has written by now is to be passed on. Asked after each work().
    [[nodiscard]] virtual bool wants_all_output() const { return false; }
    virtual void has_all_output() {}
};

} // namespace singularity::task
