// SPDX-License-Identifier: GPL-2.0-or-later
// Files on a disk are removed by a process of its own: how long that takes is nothing the agent waits for.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace singularity::agent {

class Removal {
  public:
    // Directories with all that is in them; what is not there is no error, what cannot be removed is logged.
    // Dies with the agent: the next one begins again. uid: for whom; root's are of several users.
    [[nodiscard]] static Expected<Removal> start(const std::vector<std::filesystem::path> &paths,
                                                 uid_t uid = 0);

    // The same for what is removed in another way, without an exception.
    [[nodiscard]] static Expected<Removal> start(const std::function<void()> &remove, uid_t uid = 0);

    void watch(std::vector<int> &fds) const { fds.push_back(pidfd_.get()); }
    [[nodiscard]] bool ended() const;

  private:
    explicit Removal(UniqueFd pidfd) : pidfd_(std::move(pidfd)) {}

    UniqueFd pidfd_;
};

// For an agent that starts: removes from the staging directory what is of no node that it knows. Moved aside
// at once, so that a new node can have the name again.
[[nodiscard]] Expected<void> clear_staging(const std::filesystem::path &staging,
                                           const std::function<bool(const std::string &)> &known);

} // namespace singularity::agent
