// SPDX-License-Identifier: GPL-2.0-or-later
// Who is on the other side of a connection, as the kernel says, and what he may do.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "node/record.hpp"
#include "slurm_cgroup.hpp"

#include <string>
#include <vector>

#include <sys/types.h>

namespace singularity::agent {

class PeerCredentials {
  public:
    [[nodiscard]] static Expected<PeerCredentials> of(int socket);

    [[nodiscard]] uid_t uid() const { return uid_; }
    [[nodiscard]] gid_t gid() const { return gid_; }
    [[nodiscard]] const std::vector<gid_t> &groups() const { return groups_; }
    [[nodiscard]] bool is_root() const { return uid_ == 0; }
    // A user only nodes that could be his own processes; names of root's choice cannot be taken away by
    // others.
    [[nodiscard]] Expected<void> may_make(const node::Spec &spec) const;
    [[nodiscard]] Expected<void> may_touch(const node::Spec &spec) const;
    // A user only from within a step of Slurm's, in whose cgroups the node is, unless the site allows more.
    [[nodiscard]] Expected<void> may_run_here(bool without_slurm, const std::string &cgroups) const;
    // The same of nodes on several hosts, where no step's cgroups are known.
    [[nodiscard]] Expected<void> may_run_on_hosts(bool without_slurm) const;
    // How a name of his begins.
    [[nodiscard]] std::string prefix() const;
    // His process's /proc/PID/cgroup.
    [[nodiscard]] Expected<std::string> cgroups() const;
    // Where Slurm has put his process, of what cgroups() has said: it may have moved since, and nothing of
    // what it is to be in is read a second time.
    [[nodiscard]] Expected<SlurmCgroup> slurm_cgroup(const std::string &cgroups) const;
    // By SIGSTOP or the like.
    [[nodiscard]] bool is_stopped() const;
    // SIGSTOP for the first of its children that it still has, if that is a process of the same user.
    void stop_child() const;

  private:
    pid_t pid_ = 0;
    uid_t uid_ = 0;
    gid_t gid_ = 0;
    std::vector<gid_t> groups_;
    UniqueFd pidfd_;
};

} // namespace singularity::agent
