// SPDX-License-Identifier: GPL-2.0-or-later
// A virtual node comes into being: a process of the agent's makes the namespaces, another becomes init.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "record.hpp"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <sys/types.h>

namespace singularity::node {

struct MakePlan {
    Spec spec; // checked
    Room room; // prepared
    std::filesystem::path init;
    std::string cgroups;        // /proc/PID/cgroup of who asks for it: the node's as well
    bool hide_unsavable = true; // hidden_calls.hpp
    // Called by the node's own first process before anything is mounted; may wait for a disk. Null: nothing
    // is to be done.
    std::function<Expected<void>()> make_sources;
    // A network namespace that others are in as well; null: it gets one of its own.
    std::shared_ptr<const UniqueFd> network = nullptr;
};

// The agent's end. Nothing blocks: step() is called when fd() is readable. Nothing goes on before allow(): if
// the agent dies first, so does what it has begun.
class Making {
  public:
    struct Born { // init-to-be exists: write the record, then allow()
        pid_t pid;
        UniqueFd pidfd;
    };

    [[nodiscard]] static Expected<Making> begin(const MakePlan &plan);

    [[nodiscard]] int fd() const { return channel_.get(); }
    [[nodiscard]] std::optional<Born> born() { return std::exchange(born_, std::nullopt); }
    // True when it is done; an Error says what went wrong in the node, which has ended then.
    [[nodiscard]] Expected<bool> step();
    [[nodiscard]] Expected<void> allow() const;

  private:
    explicit Making(UniqueFd channel) : channel_(std::move(channel)) {}

    UniqueFd channel_;
    std::optional<Born> born_;
};

} // namespace singularity::node
