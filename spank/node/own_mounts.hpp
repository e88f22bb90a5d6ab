// SPDX-License-Identifier: GPL-2.0-or-later
// A mount namespace of a process's own, for whoever makes a node or its image in it.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "record.hpp"

#include <string>
#include <utility>
#include <vector>

namespace singularity::node {

// The agent may have been started with chroot, and only at the root of a mount namespace everything can be
// made a slave: this knows both roots.
class OwnMounts {
  public:
    // The calling process has one from now on, and is at its root. What is mounted in it appears nowhere
    // else.
    [[nodiscard]] static Expected<OwnMounts> make();
    // What the agent sees as /.
    [[nodiscard]] const UniqueFd &root_of_agent() const { return agent_; }
    [[nodiscard]] Expected<void> go_to_root_of_agent() const;
    [[nodiscard]] Expected<void> go_to_own_root() const;

  private:
    OwnMounts(UniqueFd agent, UniqueFd own) : agent_(std::move(agent)), own_(std::move(own)) {}
    UniqueFd agent_;
    UniqueFd own_;
};

// Names are found as the job finds them: its local directories lie over the host's as long as this lives. In
// a mount namespace of the caller's own.
class LocalView {
  public:
    [[nodiscard]] static Expected<LocalView> show(const Spec &spec);
    LocalView(LocalView &&other) noexcept : paths_(std::exchange(other.paths_, {})) {}
    LocalView &operator=(LocalView &&) = delete;
    LocalView(const LocalView &) = delete;
    LocalView &operator=(const LocalView &) = delete;
    ~LocalView();

  private:
    LocalView() = default;
    std::vector<std::string> paths_;
};

} // namespace singularity::node
